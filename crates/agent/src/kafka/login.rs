//! TLS and authentication of Kafka clients.

use std::fs;
use std::path::Path;

use rdkafka::config::ClientConfig;

use super::options::{Sasl, Tls};
use crate::failure::Failure;
use crate::secret;

/// Configures a client's TLS and login. `place` is the path of the fields in the file, such as
/// `sinks.kafka`. Certificates are read here, since the client would read them only after the
/// sandbox confined it.
pub(crate) fn apply(
    config: &mut ClientConfig,
    tls: Option<&Tls>,
    sasl: Option<&Sasl>,
    place: &str,
) -> Result<(), Failure> {
    let usage = |field: &str| {
        let field = format!("{place}.{field}");
        move |reason| Failure::Usage(format!("{field}: {reason}"))
    };
    config.set(
        "security.protocol",
        match (tls, sasl) {
            (None, None) => "plaintext",
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        },
    );
    if let Some(Tls { ca_file, certificate_file, key_file }) = tls {
        for (file, field, name) in [
            (ca_file, "tls.ca-file", "ssl.ca.pem"),
            (certificate_file, "tls.certificate-file", "ssl.certificate.pem"),
        ] {
            if let Some(file) = file {
                config.set(name, certificate(file).map_err(usage(field))?);
            }
        }
        if let Some(file) = key_file {
            config.set("ssl.key.pem", secret::read(file).map_err(usage("tls.key-file"))?);
        }
    }
    if let Some(Sasl { user, password_file, mechanism }) = sasl {
        let password = secret::read(password_file).map_err(usage("sasl.password-file"))?;
        config.set("sasl.mechanism", mechanism.name());
        config.set("sasl.username", user).set("sasl.password", password);
    }
    Ok(())
}

/// The contents of a certificate file.
fn certificate(file: &Path) -> Result<String, String> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        return Err(format!("{name} holds no certificate; give a file in PEM format"));
    }
    Ok(text)
}
