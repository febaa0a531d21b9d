"""Self-signed certificates for test servers."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificate:
    """The files of a self-signed certificate."""

    file: Path
    key: Path

    def context(self, *protocols: str) -> ssl.SSLContext:
        """Return the TLS context of a server that offers these protocols."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context


def create_certificate(folder: Path, address: str = "127.0.0.1") -> Certificate:
    """Create a certificate for an IP address."""
    x509 = pytest.importorskip("cryptography.x509", reason="cryptography is not installed")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "an upstream")])
    now = datetime.now(UTC)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(alternative, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate = Certificate(folder / f"{address}.pem", folder / f"{address}.key")
    certificate.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    certificate.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate
