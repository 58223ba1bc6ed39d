//! The first message of a TLS client, as far as the name in it.
//!
//! In: the first bytes of a connection. Out: the server's name that they ask for. Pure. RFC 8446
//! §4.1.2, RFC 6066 §3. An encrypted hello shows its outer name, which is judged like any other:
//! browsers send the extension without meaning it.

/// Most bytes of a hello. Real ones have a few hundred, with post-quantum shares 2 KiB; ours.
const LONGEST: usize = 64 << 10;

/// What the first bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// The beginning of a hello; more is needed.
    Partial,
    /// Not TLS.
    Other,
    /// TLS that can't be read.
    Broken,
    /// A whole hello with the name that it asks for.
    Whole(Option<String>),
}

/// Reads the first bytes of a connection.
pub(super) fn read(bytes: &[u8]) -> Hello {
    match bytes {
        [] | [0x16] => Hello::Partial,
        [0x16, 3, ..] => message(bytes),
        _ => Hello::Other,
    }
}

/// Puts the handshake message together from its records.
fn message(mut bytes: &[u8]) -> Hello {
    let mut message = Vec::new();
    loop {
        if let [kind, a, b, c, body @ ..] = message.as_slice() {
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            if *kind != 1 || length > LONGEST {
                return Hello::Broken;
            }
            if let Some(body) = body.get(..length) {
                return name(body);
            }
        }
        match bytes {
            [0x16, 3, _, high, low, rest @ ..] => {
                let length = usize::from(*high) << 8 | usize::from(*low);
                if length == 0 || length > 1 << 14 {
                    return Hello::Broken;
                }
                let Some((record, after)) = rest.split_at_checked(length) else {
                    return Hello::Partial;
                };
                message.extend_from_slice(record);
                bytes = after;
            }
            [] | [0x16] | [0x16, 3] | [0x16, 3, _] | [0x16, 3, _, _] => return Hello::Partial,
            _ => return Hello::Broken,
        }
    }
}

fn name(hello: &[u8]) -> Hello {
    let mut found = None;
    match find_name(hello, &mut found) {
        Some(()) => Hello::Whole(found),
        None => Hello::Broken,
    }
}

/// Puts the name in a hello into `found`; `None` when the hello isn't one.
fn find_name(mut hello: &[u8], found: &mut Option<String>) -> Option<()> {
    let from = &mut hello;
    take(from, 2 + 32)?;
    vector(from, 1)?;
    vector(from, 2)?;
    vector(from, 1)?;
    if from.is_empty() {
        return Some(());
    }
    let mut extensions = vector(from, 2)?;
    while !extensions.is_empty() {
        let kind = take(&mut extensions, 2)?;
        let mut data = vector(&mut extensions, 2)?;
        if kind == [0, 0] {
            if found.is_some() {
                return None;
            }
            let mut list = vector(&mut data, 2)?;
            let is_host = take(&mut list, 1)? == [0];
            let name = vector(&mut list, 2)?;
            // One name of one type is all that was ever defined.
            if !is_host || !list.is_empty() || !data.is_empty() {
                return None;
            }
            *found = Some(String::from_utf8(name.to_vec()).ok()?);
        }
    }
    Some(())
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(count)?;
    *from = rest;
    Some(taken)
}

/// A vector whose length stands before it in so many bytes.
fn vector<'a>(from: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let length = take(from, width)?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    take(from, length)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::{Hello, read};

    fn hello(name: &str, has_name: bool) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        config.enable_sni = has_name;
        let name = name.to_owned().try_into().unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_real_hello_is_read_at_every_cut() {
        let bytes = hello("a.example", true);
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]), Hello::Partial, "{cut}");
        }
        assert_eq!(read(&bytes), Hello::Whole(Some("a.example".to_owned())));
        assert_eq!(read(&hello("a.example", false)), Hello::Whole(None));
        assert_eq!(read(&hello("1.2.3.4", true)), Hello::Whole(None));
    }

    #[test]
    fn a_hello_in_many_records_is_one() {
        let bytes = hello("a.example", true);
        let split: Vec<u8> = bytes[5..]
            .chunks(7)
            .flat_map(|part| [&[0x16, 3, 1, 0, u8::try_from(part.len()).unwrap()], part].concat())
            .collect();
        assert_eq!(read(&split), Hello::Whole(Some("a.example".to_owned())));
    }

    #[test]
    fn other_protocols_are_told_apart() {
        assert_eq!(read(b"SSH-2.0-x"), Hello::Other);
        assert_eq!(read(b"GET / HTTP/1.1"), Hello::Other);
        assert_eq!(read(&[0x16, 3, 1, 0, 0]), Hello::Broken);
        assert_eq!(read(&[0x16, 3, 1, 0, 4, 2, 0, 0, 0]), Hello::Broken);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _read = read(&bytes);
            let _read = read(&[&[0x16, 3, 1, 0, 190, 1, 0, 0, 186][..], &bytes].concat());
        }

        #[test]
        fn no_change_of_a_real_one_panics(at in 0_usize..200, to in any::<u8>()) {
            let mut bytes = hello("a.example", true);
            bytes[at] = to;
            let _read = read(&bytes);
        }
    }
}
