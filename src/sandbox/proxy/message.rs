//! Messages of the domain name system, as far as a stub needs them.
//!
//! In: one query. Out: its name, and an answer to it. Pure. RFC 1035 §4.

use std::net::IpAddr;

use crate::policy::hosts::Host;

/// Seconds that an answer may be kept; ours.
const KEPT: u32 = 30;
/// Most addresses of an answer, so that it fits 512 bytes.
const ADDRESSES: usize = 7;

/// What a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Addresses of IPv4.
    A,
    /// Addresses of IPv6.
    Aaaa,
    /// Anything else, which no name has here.
    Other,
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    id: [u8; 2],
    wants_recursion: bool,
    /// The question's bytes.
    question: Vec<u8>,
    /// The name; `None` for one that is no host's.
    pub(super) host: Option<Host>,
    /// What of it.
    pub(super) kind: Kind,
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// The addresses, perhaps none.
    Fine = 0,
    /// The query can't be read.
    Malformed = 1,
    /// The lookup failed.
    Failed = 2,
    /// No such name.
    Unknown = 3,
    /// Not a question.
    Unsupported = 4,
}

/// Reads a query; `Err` is the whole answer to what is none, if it deserves one.
pub(super) fn query(bytes: &[u8]) -> Result<Query, Option<Vec<u8>>> {
    let Some((header, rest)) = bytes.split_first_chunk::<12>() else { return Err(None) };
    let [id0, id1, flags, _, questions @ ..] = header;
    // Answers are never answered: two stubs would talk for ever.
    if flags & 0x80 != 0 {
        return Err(None);
    }
    let bare = Query {
        id: [*id0, *id1],
        wants_recursion: flags & 1 != 0,
        question: Vec::new(),
        host: None,
        kind: Kind::Other,
    };
    if flags & 0x78 != 0 {
        return Err(Some(bare.answer(Code::Unsupported, &[])));
    }
    let malformed = || Some(bare.answer(Code::Malformed, &[]));
    if questions[..2] != [0, 1] {
        return Err(malformed());
    }
    let (name, length) = name(rest).ok_or_else(malformed)?;
    let kind = rest.get(length..length + 4).ok_or_else(malformed)?;
    let kind = match kind {
        [0, 1, 0, 1] => Kind::A,
        [0, 28, 0, 1] => Kind::Aaaa,
        _ => Kind::Other,
    };
    let question = rest[..length + 4].to_vec();
    let host = Host::parse(&name).filter(|host| matches!(host, Host::Name(_)));
    Ok(Query { question, host, kind, ..bare })
}

/// A name without compression, and how long it is.
fn name(bytes: &[u8]) -> Option<(String, usize)> {
    let mut name = String::new();
    let mut at = 0;
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        // Two high bits are compression, which a question has no use for.
        if length > 63 || at + length > 254 {
            return None;
        }
        let label = bytes.get(at..at + length)?;
        // A dot inside a label would make another name of it.
        let is_clean = label.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'.');
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(if is_clean { std::str::from_utf8(label).ok()? } else { "%" });
        at += length;
    }
}

impl Query {
    /// The answer to it.
    pub(super) fn answer(&self, code: Code, addresses: &[IpAddr]) -> Vec<u8> {
        let fits = |address: &&IpAddr| match self.kind {
            Kind::A => address.is_ipv4(),
            Kind::Aaaa => address.is_ipv6(),
            Kind::Other => false,
        };
        let records: Vec<Vec<u8>> = addresses
            .iter()
            .filter(fits)
            .take(ADDRESSES)
            .map(|address| match address {
                IpAddr::V4(address) => record(1, &address.octets()),
                IpAddr::V6(address) => record(28, &address.octets()),
            })
            .collect();
        let has_question = u8::from(!self.question.is_empty());
        let count = u8::try_from(records.len()).unwrap_or(0);
        let flags = [0x80 | u8::from(self.wants_recursion), 0x80 | code as u8];
        let counts = [0, has_question, 0, count, 0, 0, 0, 0];
        [&self.id[..], &flags, &counts, &self.question, &records.concat()].concat()
    }
}

/// A resource record for the question's name.
fn record(kind: u8, data: &[u8]) -> Vec<u8> {
    let length = u8::try_from(data.len()).unwrap_or(0);
    [&[0xc0, 12, 0, kind, 0, 1][..], &KEPT.to_be_bytes(), &[0, length], data].concat()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::{Code, Kind, query};
    use crate::policy::hosts::Host;

    fn asked(name: &str, kind: u8) -> Vec<u8> {
        let mut bytes = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend(label.bytes());
        }
        bytes.extend([0, 0, kind, 0, 1]);
        bytes
    }

    #[test]
    fn a_question_has_its_answer() {
        let query = query(&asked("A.Example", 1)).unwrap();
        assert_eq!(query.host, Host::parse("a.example"));
        assert_eq!(query.kind, Kind::A);
        let addresses: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "::1".parse().unwrap()];
        let answer = query.answer(Code::Fine, &addresses);
        assert_eq!(answer[..12], [7, 9, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[answer.len() - 6..], [0, 4, 192, 0, 2, 1]);
        let many = [addresses[0]; 50];
        assert!(query.answer(Code::Fine, &many).len() <= 512);
    }

    #[test]
    fn what_is_no_question_is_told_so() {
        assert_eq!(query(b"short"), Err(None));
        let mut answer = asked("a.example", 1);
        answer[2] |= 0x80;
        assert_eq!(query(&answer), Err(None));
        let mut update = asked("a.example", 1);
        update[2] |= 5 << 3;
        assert_eq!(query(&update).unwrap_err().unwrap()[3] & 15, 4);
        let mut two = asked("a.example", 1);
        two[5] = 2;
        assert_eq!(query(&two).unwrap_err().unwrap()[3] & 15, 1);
        let mut compressed = asked("a.example", 1);
        compressed[12] = 0xc0;
        assert_eq!(query(&compressed).unwrap_err().unwrap()[3] & 15, 1);
        assert_eq!(query(&asked("a.example", 15)).unwrap().kind, Kind::Other);
    }

    #[test]
    fn a_dot_inside_a_label_makes_no_other_name() {
        let mut bytes = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 9];
        bytes.extend(b"a.example");
        bytes.extend([0, 0, 1, 0, 1]);
        assert_eq!(query(&bytes).unwrap().host, None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(query) = query(&bytes) {
                prop_assert!(query.answer(Code::Fine, &["::1".parse().unwrap()]).len() <= 512);
            }
        }

        #[test]
        fn no_tail_panics(tail in proptest::collection::vec(any::<u8>(), 0..300)) {
            let head = [7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            if let Ok(query) = query(&[&head[..], &tail].concat()) {
                prop_assert!(query.answer(Code::Unknown, &[]).len() <= 512);
            }
        }
    }
}
