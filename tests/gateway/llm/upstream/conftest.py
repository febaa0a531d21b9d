"""Fixtures of the tests with TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.llm.certificates import Certificate, create_certificate


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certificate:
    """A certificate that the user trusts through SSL_CERT_FILE."""
    certificate = create_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    return certificate
