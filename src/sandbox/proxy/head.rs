//! Heads of HTTP/1 messages: read strictly, written anew.
//!
//! In: bytes up to the empty line. Out: what is asked for, the head that goes on, and how the body
//! is framed. Pure. What two readers could take for different things is refused: RFC 9112 §6.3,
//! §11.2.

use super::body::Framing;
use crate::policy::hosts::{Host, Target};

/// Most bytes of a head; ours.
pub(super) const LONGEST: usize = 64 << 10;
/// Most fields of a head; ours.
const FIELDS: usize = 128;

/// Fields that are for this connection alone: RFC 9110 §7.6.1, and what is in use beside it.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "http2-settings",
];

/// What a client asks of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A tunnel.
    Tunnel(Target),
    /// One request.
    Request(Request),
}

/// One request that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Where to.
    pub(super) target: Target,
    /// Its head for the server itself.
    pub(super) head: Vec<u8>,
    /// The whole URL, for another proxy.
    pub(super) url: String,
    /// How its body ends.
    pub(super) framing: Framing,
    /// Whether the response has no body whatever its head says.
    pub(super) is_head: bool,
}

impl Request {
    /// Its head for another proxy, with that one's credentials.
    pub(super) fn head_for_proxy(&self, credentials: Option<&str>) -> Vec<u8> {
        let text = &self.head;
        let space = text.iter().position(|byte| *byte == b' ').unwrap_or(0);
        let rest = text[space + 1..].iter().position(|byte| *byte == b' ').unwrap_or(0) + space + 1;
        let line = text[rest..].iter().position(|byte| *byte == b'\n').unwrap_or(0) + rest + 1;
        let mut head = [&text[..=space], self.url.as_bytes(), &text[rest..line]].concat();
        if let Some(credentials) = credentials {
            head.extend(format!("Proxy-Authorization: {credentials}\r\n").bytes());
        }
        head.extend(&text[line..]);
        head
    }
}

/// The head of a response that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// Its status.
    pub(super) status: u16,
    /// The head for the client.
    pub(super) head: Vec<u8>,
    /// How its body ends.
    pub(super) framing: Framing,
}

/// What is wrong with a head, one fragment.
pub(super) type Wrong = &'static str;

/// Reads the head of a request; `None` when it isn't whole. The count is the head's bytes.
pub(super) fn request(bytes: &[u8]) -> Result<Option<(Asked, usize)>, Wrong> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err("it has more than 128 fields"),
        Err(_) => return Err("it is not a request of HTTP/1"),
    };
    let (Some(method), Some(url), Some(version)) = (head.method, head.path, head.version) else {
        return Err("it is not a request of HTTP/1");
    };
    let framing = request_framing(head.headers, version)?;
    if method == "CONNECT" {
        let (host, port) =
            Host::parse_with_port(url, None).ok_or("CONNECT must name `HOST:PORT`")?;
        if framing != Framing::Length(0) {
            return Err("CONNECT must have no body");
        }
        return Ok(Some((Asked::Tunnel(Target { host, port }), length)));
    }
    let (authority, path) = split(url)?;
    let (host, port) =
        Host::parse_with_port(authority, Some(80)).ok_or("the URL must name a host")?;
    host_field(head.headers, version, &(host.clone(), port))?;
    let target = Target { host, port };
    let authority = target.to_string();
    // The default port is left out, as servers know their names.
    let shown = authority.strip_suffix(":80").unwrap_or(&authority);
    let mut out = format!("{method} {path} HTTP/1.{version}\r\nHost: {shown}\r\n").into_bytes();
    copy(head.headers, &["host"], &mut out);
    let request = Request {
        url: format!("http://{shown}{path}"),
        target,
        head: out,
        framing,
        is_head: method == "HEAD",
    };
    Ok(Some((Asked::Request(request), length)))
}

/// Splits a whole URL into its authority and the rest, which begins with `/`.
fn split(url: &str) -> Result<(&str, String), Wrong> {
    let scheme = url.get(..7).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("http://") {
        return Err("a request must have a whole `http://` URL; `https` goes by CONNECT");
    }
    let rest = &url[7..];
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') || path.contains(['#', '\\']) {
        return Err("the URL must have neither credentials nor a fragment nor backslashes");
    }
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok((authority, format!("{slash}{path}")))
}

/// The field `Host` must be the URL's.
fn host_field(
    fields: &[httparse::Header<'_>],
    version: u8,
    url: &(Host, u16),
) -> Result<(), Wrong> {
    let mut hosts = values(fields, "host");
    match (hosts.next(), hosts.next()) {
        (None, _) if version == 0 => Ok(()),
        (Some(value), None) => {
            let named = std::str::from_utf8(value).ok().map(str::trim);
            let named = named.and_then(|text| Host::parse_with_port(text, Some(80)));
            if named.as_ref() == Some(url) { Ok(()) } else { Err("`Host` must be the URL's host") }
        }
        (None | Some(_), _) => Err("it must have one field `Host`"),
    }
}

fn values<'a>(fields: &'a [httparse::Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|f| f.value)
}

/// The one way in which the fields frame a body; `None` when they don't.
fn framing(fields: &[httparse::Header<'_>], version: u8) -> Result<Option<Framing>, Wrong> {
    let mut codings = values(fields, "transfer-encoding");
    let mut lengths = values(fields, "content-length");
    match (codings.next(), lengths.next()) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err("it has both `Transfer-Encoding` and `Content-Length`"),
        (Some(coding), None) => {
            let is_chunked = coding.trim_ascii().eq_ignore_ascii_case(b"chunked");
            if !is_chunked || codings.next().is_some() || version == 0 {
                return Err("its `Transfer-Encoding` is not `chunked`");
            }
            Ok(Some(Framing::Chunked))
        }
        (None, Some(length)) => {
            let digits = length.trim_ascii();
            let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
            match number {
                Some(number) if is_number && lengths.next().is_none() => {
                    Ok(Some(Framing::Length(number)))
                }
                Some(_) | None => Err("its `Content-Length` is not one number"),
            }
        }
    }
}

fn request_framing(fields: &[httparse::Header<'_>], version: u8) -> Result<Framing, Wrong> {
    Ok(framing(fields, version)?.unwrap_or(Framing::Length(0)))
}

/// Writes the fields that go on, and the end of the head.
fn copy(fields: &[httparse::Header<'_>], without: &[&str], out: &mut Vec<u8>) {
    let named: Vec<String> = values(fields, "connection")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|name| String::from_utf8_lossy(name).trim().to_ascii_lowercase())
        // These frame the body, whatever a client calls them.
        .filter(|name| !["content-length", "transfer-encoding", "host"].contains(&name.as_str()))
        .collect();
    for field in fields {
        let name = field.name.to_ascii_lowercase();
        let is_dropped = HOP_BY_HOP.contains(&name.as_str())
            || named.contains(&name)
            || without.contains(&name.as_str());
        if !is_dropped {
            out.extend([field.name.as_bytes(), b": ", field.value, b"\r\n"].concat());
        }
    }
    out.extend(b"Connection: close\r\n\r\n");
}

/// Reads the head of a response; `None` when it isn't whole. The count is the head's bytes.
pub(super) fn response(bytes: &[u8], is_head: bool) -> Result<Option<(Response, usize)>, Wrong> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("the server's answer is not a response of HTTP/1"),
    };
    let (Some(status), Some(version)) = (head.code, head.version) else {
        return Err("the server's answer is not a response of HTTP/1");
    };
    if status == 101 {
        return Err("the server switched to another protocol, which goes by CONNECT");
    }
    let has_body = !is_head && !matches!(status, 100..=199 | 204 | 304);
    let framing = match framing(head.headers, version)? {
        _ if !has_body => Framing::Length(0),
        Some(framing) => framing,
        None => Framing::Close,
    };
    let reason = head.reason.unwrap_or_default();
    let mut out = format!("HTTP/1.{version} {status} {reason}\r\n").into_bytes();
    copy(head.headers, &[], &mut out);
    Ok(Some((Response { status, head: out, framing }, length)))
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
