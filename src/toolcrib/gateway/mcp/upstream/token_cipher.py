"""Encrypt OAuth tokens for the store, with keys that can be replaced."""

from __future__ import annotations

from collections.abc import Sequence

from toolcrib.errors import InvalidConfig, InvalidStore


class TokenCipher:
    """Encrypts with the first of some keys and decrypts with any of them."""

    def __init__(self, keys: Sequence[str]) -> None:
        try:
            # An extra.
            from cryptography.fernet import Fernet, InvalidToken, MultiFernet
        except ImportError:
            raise InvalidConfig(
                "tokenKeys: encryption needs the package cryptography; run: pip install 'toolcrib[postgres]'"
            ) from None
        self._first = Fernet(keys[0])
        self._all = MultiFernet([Fernet(key) for key in keys])
        self._invalid_token = InvalidToken

    def encrypt(self, text: bytes) -> bytes:
        """Return a text, encrypted with the first key."""
        return self._first.encrypt(text)

    def decrypt(self, body: bytes) -> bytes:
        """Return the text of an encrypted body."""
        try:
            return self._all.decrypt(body)
        except self._invalid_token:
            raise InvalidStore(
                "a token in the store was encrypted with a key that is not in `tokenKeys`; add the key, or run "
                "`toolcrib login` again"
            ) from None

    def rotate(self, body: bytes) -> bytes:
        """Return a body that the first key can decrypt; the same body if it can already."""
        try:
            self._first.decrypt(body)
        except self._invalid_token:
            return self._first.encrypt(self.decrypt(body))
        return body
