use proptest::prelude::*;

use super::{Asked, Request, request, response};
use crate::sandbox::proxy::body::Framing;

fn whole(text: &str) -> Result<Asked, &'static str> {
    request(text.as_bytes()).map(|read| read.unwrap().0)
}

fn plain(text: &str) -> Request {
    match whole(text).unwrap() {
        Asked::Request(request) => request,
        Asked::Tunnel(target) => panic!("a tunnel to {target}"),
    }
}

fn refused(fields: &str) -> bool {
    whole(&format!("POST http://a.example/ HTTP/1.1\r\n{fields}\r\n")).is_err()
}

#[test]
fn a_request_is_written_anew() {
    let request = plain(
        "POST http://A.example./p?q HTTP/1.1\r\nHost: a.EXAMPLE:80\r\nConnection: x-a, close\r\n\
         X-A: 1\r\nX-B: 2\r\nProxy-Authorization: Basic eA==\r\nProxy-Connection: keep-alive\r\n\
         TE: trailers\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\n",
    );
    assert_eq!(
        String::from_utf8(request.head.clone()).unwrap(),
        "POST /p?q HTTP/1.1\r\nHost: a.example\r\nX-B: 2\r\nContent-Length: 3\r\n\
         Connection: close\r\n\r\n"
    );
    assert_eq!(request.framing, Framing::Length(3));
    assert_eq!(
        String::from_utf8(request.head_for_proxy(Some("Basic eA=="))).unwrap(),
        "POST http://a.example/p?q HTTP/1.1\r\nProxy-Authorization: Basic eA==\r\n\
         Host: a.example\r\nX-B: 2\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn the_path_begins_with_a_slash() {
    for (url, line) in [
        ("http://a.example", "GET / HTTP"),
        ("http://a.example?q", "GET /?q HTTP"),
        ("HTTP://a.example:8080/x", "GET /x HTTP"),
    ] {
        let port = if url.contains("8080") { ":8080" } else { "" };
        let request = plain(&format!("GET {url} HTTP/1.1\r\nHost: a.example{port}\r\n\r\n"));
        assert!(request.head.starts_with(line.as_bytes()), "{url}");
    }
}

#[test]
fn what_two_readers_could_read_differently_is_refused() {
    for fields in [
        "Host: a.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Host: a.example\r\nContent-Length: 3\r\nContent-Length: 3\r\n",
        "Host: a.example\r\nContent-Length: 3, 3\r\n",
        "Host: a.example\r\nContent-Length: +3\r\n",
        "Host: a.example\r\nContent-Length: 0x3\r\n",
        "Host: a.example\r\nContent-Length: \r\n",
        "Host: a.example\r\nContent-Length: 99999999999999999999\r\n",
        "Host: a.example\r\nTransfer-Encoding: gzip, chunked\r\n",
        "Host: a.example\r\nTransfer-Encoding: xchunked\r\n",
        "Host: a.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Host: a.example\r\nTransfer-Encoding : chunked\r\n",
        "Host: a.example\r\nX: a\r\n b\r\n",
        "Host: a.example\r\nHost: b.example\r\n",
        "Host: b.example\r\n",
        "Host: a.example:81\r\n",
        "Host: a.example, b.example\r\n",
        "Host: \r\n",
        "",
    ] {
        assert!(refused(fields), "{fields:?}");
    }
    assert!(!refused("Host: a.example\r\nTransfer-Encoding: Chunked\r\n"));
    assert!(
        whole("POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").is_err()
    );
}

#[test]
fn a_framing_field_stays_although_connection_names_it() {
    let request = plain(
        "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\
         Connection: content-length\r\nContent-Length: 3\r\n\r\n",
    );
    assert!(String::from_utf8(request.head).unwrap().contains("Content-Length: 3\r\n"));
}

#[test]
fn what_is_no_request_for_a_proxy_is_refused() {
    for line in [
        "GET / HTTP/1.1",
        "GET https://a.example/ HTTP/1.1",
        "GET ftp://a.example/ HTTP/1.1",
        "GET http://u:p@a.example/ HTTP/1.1",
        "GET http://a.example\\@b.example/ HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET http://a.example:0/ HTTP/1.1",
        "GET http://a%2eexample/ HTTP/1.1",
        "CONNECT a.example HTTP/1.1",
        "CONNECT http://a.example:443 HTTP/1.1",
        "CONNECT a.example:443/ HTTP/1.1",
        "PRI * HTTP/2.0",
        "OPTIONS * HTTP/1.1",
    ] {
        assert!(whole(&format!("{line}\r\nHost: a.example\r\n\r\n")).is_err(), "{line}");
    }
    assert!(whole("CONNECT a.example:443 HTTP/1.1\r\nContent-Length: 1\r\n\r\n").is_err());
    let many = "X: y\r\n".repeat(129);
    assert!(whole(&format!("CONNECT a.example:443 HTTP/1.1\r\n{many}\r\n")).is_err());
}

#[test]
fn a_response_is_framed_as_its_reader_would() {
    let read = |text: &str, is_head| response(text.as_bytes(), is_head).map(|read| read.unwrap().0);
    let framing = |fields: &str| read(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"), false);
    assert_eq!(framing("").unwrap().framing, Framing::Close);
    assert_eq!(framing("Content-Length: 7\r\n").unwrap().framing, Framing::Length(7));
    assert_eq!(framing("Transfer-Encoding: chunked\r\n").unwrap().framing, Framing::Chunked);
    assert!(framing("Content-Length: 7\r\nTransfer-Encoding: chunked\r\n").is_err());
    assert!(read("HTTP/1.1 101 x\r\nUpgrade: y\r\n\r\n", false).is_err());
    for (text, is_head) in [
        ("HTTP/1.1 204 x\r\nContent-Length: 7\r\n\r\n", false),
        ("HTTP/1.1 200 x\r\nContent-Length: 7\r\n\r\n", true),
        ("HTTP/1.1 100 Continue\r\n\r\n", false),
    ] {
        assert_eq!(read(text, is_head).unwrap().framing, Framing::Length(0), "{text}");
    }
    let head = framing("Keep-Alive: 5\r\nX: y\r\n").unwrap().head;
    assert_eq!(head, b"HTTP/1.1 200 OK\r\nX: y\r\nConnection: close\r\n\r\n");
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        drop(request(&bytes));
        drop(response(&bytes, false));
    }

    #[test]
    fn a_changed_request_names_one_host(at in 0_usize..60, to in any::<u8>()) {
        let mut bytes = b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nX: http://b/\r\n\r\n".to_vec();
        bytes[at] = to;
        if let Ok(Some((Asked::Request(request), _))) = request(&bytes) {
            let head = String::from_utf8_lossy(&request.head).into_owned();
            prop_assert_eq!(head.to_ascii_lowercase().matches("\r\nhost:").count(), 1);
        }
    }
}
