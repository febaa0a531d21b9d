"""What tools may be trusted with: scanning what they say, pinning what they said first."""
