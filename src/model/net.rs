//! The operator's network: proxies and certificates, as values.
//!
//! In: what `HTTPS_PROXY HTTP_PROXY NO_PROXY SSL_CERT_FILE SSL_CERT_DIR` say, read by `cli`. Out:
//! the same for the record, without credentials (P8). Knows nothing of the environment.

use std::collections::BTreeMap;
use std::fmt;

/// The operator's proxies and certificates; every field absent by default.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NetOptions {
    /// `HTTPS_PROXY`: proxy of `https` URLs; without a scheme `http://` is meant.
    pub https_proxy: Option<String>,
    /// `HTTP_PROXY`: proxy of `http` URLs.
    pub http_proxy: Option<String>,
    /// `NO_PROXY`: hosts, domains and networks that are reached directly, joined by commas.
    pub no_proxy: Option<String>,
    /// `SSL_CERT_FILE`: PEM file of trusted roots, in place of the system's.
    pub ssl_cert_file: Option<String>,
    /// `SSL_CERT_DIR`: folders of PEM files of trusted roots, joined by colons, in place of the
    /// system's.
    pub ssl_cert_dir: Option<String>,
}

impl NetOptions {
    /// What is set, by variable name; user names and passwords of proxies are cut out.
    pub fn redacted(&self) -> BTreeMap<String, String> {
        let proxy = |value: &Option<String>| value.as_deref().map(without_credentials);
        [
            ("HTTPS_PROXY", proxy(&self.https_proxy)),
            ("HTTP_PROXY", proxy(&self.http_proxy)),
            ("NO_PROXY", self.no_proxy.clone()),
            ("SSL_CERT_FILE", self.ssl_cert_file.clone()),
            ("SSL_CERT_DIR", self.ssl_cert_dir.clone()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
    }
}

impl fmt::Debug for NetOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_map().entries(self.redacted()).finish()
    }
}

/// Cuts everything up to the last `@` after the scheme, and the query.
///
/// A password may hold an unescaped `/`, so the authority's end can't be trusted.
pub(super) fn without_credentials(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}{rest}")
}

#[cfg(test)]
mod tests {
    use super::NetOptions;

    #[test]
    fn p6_credentials_of_proxies_are_cut_out() {
        for (url, shown) in [
            ("http://user:pw@proxy:3128", "http://proxy:3128"),
            ("http://user:p/w@proxy:3128/", "http://proxy:3128/"),
            ("user:p@ss@proxy", "proxy"),
            ("https://proxy?token=x", "https://proxy"),
            ("proxy:3128", "proxy:3128"),
        ] {
            let net = NetOptions { https_proxy: Some(url.to_owned()), ..NetOptions::default() };
            assert_eq!(net.redacted()["HTTPS_PROXY"], shown, "{url}");
            assert!(!format!("{net:?}").contains("user"), "{url}");
            assert_eq!(net.redacted().len(), 1);
        }
    }
}
