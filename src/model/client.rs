//! The HTTP client: TLS roots, proxies, no redirects.
//!
//! In: the base URL and the operator's [`NetOptions`]. Out: a client. Reads certificate files;
//! never the environment.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, NoProxy, Proxy, Url, redirect};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, RootCertStore};

use super::fault::error;
use super::net::without_credentials;
use super::{FaultKind, ModelError, NetOptions};

/// How long a connection may take to be made, TLS included. Our choice: three tries fit into the
/// minute after which refused connections end a request.
const CONNECT: Duration = Duration::from_secs(20);

/// Makes the client for `url`.
///
/// Redirects are not followed: the key would go to whom the provider names.
pub(super) fn client(url: &Url, net: &NetOptions) -> Result<Client, ModelError> {
    if CryptoProvider::get_default().is_none() {
        // A second thread may have been faster; then its provider is the same one.
        drop(ring::default_provider().install_default());
    }
    let builder = Client::builder()
        .user_agent(concat!("horseman/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT)
        .no_proxy();
    let builder = proxies(builder, net)?;
    let builder = roots(builder, url, net)?;
    builder.build().map_err(|failed| {
        let cause = chain(&failed);
        invalid(format!("the HTTP client can't be set up: {cause}"))
    })
}

/// An error with its causes, joined by colons.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

fn invalid(message: String) -> ModelError {
    error(FaultKind::BadRequest, message)
}

fn proxies(mut builder: ClientBuilder, net: &NetOptions) -> Result<ClientBuilder, ModelError> {
    let no_proxy = net.no_proxy.as_deref().and_then(NoProxy::from_string);
    let wanted = [
        ("HTTPS_PROXY", &net.https_proxy, Proxy::https as fn(String) -> reqwest::Result<Proxy>),
        ("HTTP_PROXY", &net.http_proxy, Proxy::http as fn(String) -> reqwest::Result<Proxy>),
    ];
    for (name, value, make) in wanted {
        let Some(value) = value.as_deref().filter(|value| !value.trim().is_empty()) else {
            continue;
        };
        let value = value.trim();
        let url = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
        let proxy = make(url).map_err(|_| {
            invalid(format!("`{name}` must be a URL, got `{}`", without_credentials(value)))
        })?;
        builder = builder.proxy(proxy.no_proxy(no_proxy.clone()));
    }
    Ok(builder)
}

fn roots(builder: ClientBuilder, url: &Url, net: &NetOptions) -> Result<ClientBuilder, ModelError> {
    let is_set = |text: &&str| !text.is_empty();
    let file = net.ssl_cert_file.as_deref().filter(is_set);
    let folders = net.ssl_cert_dir.as_deref().filter(is_set);
    if file.is_some() || folders.is_some() {
        let mut certificates = Vec::new();
        if let Some(file) = file {
            certificates.extend(certificate_file(Path::new(file))?);
        }
        for folder in folders.into_iter().flat_map(|folders| folders.split(':')) {
            certificates.extend(certificate_folder(Path::new(folder))?);
        }
        return Ok(builder.tls_certs_only(certificates));
    }
    let proxies = [&net.https_proxy, &net.http_proxy];
    let has_tls_proxy =
        proxies.iter().any(|proxy| proxy.as_deref().is_some_and(|url| url.starts_with("https:")));
    if url.scheme() == "https" || has_tls_proxy {
        return Ok(builder);
    }
    // Nothing here speaks TLS: reading the system's roots would cost time, and fail where there are
    // none. Without roots a handshake fails, it doesn't pass.
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|failed| invalid(format!("TLS can't be set up: {failed}")))?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    Ok(builder.tls_backend_preconfigured(config))
}

fn certificate_file(path: &Path) -> Result<Vec<Certificate>, ModelError> {
    let shown = path.display();
    let bytes = fs::read(path)
        .map_err(|failed| invalid(format!("`SSL_CERT_FILE` `{shown}` can't be read: {failed}")))?;
    match Certificate::from_pem_bundle(&bytes) {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(invalid(format!("`SSL_CERT_FILE` `{shown}` must hold PEM certificates"))),
    }
}

/// Reads every certificate in a folder; other files lie there as well and are passed over.
fn certificate_folder(path: &Path) -> Result<Vec<Certificate>, ModelError> {
    let shown = path.display();
    let entries = fs::read_dir(path)
        .map_err(|failed| invalid(format!("`SSL_CERT_DIR` `{shown}` can't be read: {failed}")))?;
    let files = entries.flatten().filter_map(|entry| fs::read(entry.path()).ok());
    Ok(files.filter_map(|bytes| Certificate::from_pem_bundle(&bytes).ok()).flatten().collect())
}
