use std::net::IpAddr;

use proptest::prelude::*;

use super::{Host, HostRules, Pattern, PatternError, Protocol, Target, private};

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn rules(allow: &[&str], deny: &[&str]) -> HostRules {
    HostRules::new(&strings(allow), &strings(deny)).unwrap()
}

fn target(text: &str) -> Target {
    let (host, port) = Host::parse_with_port(text, Some(443)).unwrap();
    Target { host, port }
}

fn allows(rules: &HostRules, text: &str) -> bool {
    rules.judge(&target(text), Protocol::Https).is_allowed
}

#[test]
fn spellings_of_a_host_are_one() {
    for (written, meant) in [
        ("Example.COM.", "example.com"),
        ("b\u{fc}cher.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("\u{ff45}xample.com", "example.com"),
        ("0x7f.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("[::ffff:10.0.0.1]", "10.0.0.1"),
        ("::ffff:7f00:1", "127.0.0.1"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("_srv.example.com", "_srv.example.com"),
    ] {
        assert_eq!(
            Host::parse(written).map(|host| host.to_string()),
            Some(meant.to_owned()),
            "{written}"
        );
    }
    for wrong in [
        "",
        ".",
        "a..b",
        "a b",
        "a/b",
        "a@b",
        "%65xample.com",
        "fe80::1%eth0",
        "[1.2.3.4]",
        "1.2.3.256",
        "a.0x7f",
        "example.com..",
        "exa\u{0}mple.com",
        "a\r\nb",
        "[::1",
        "::1]",
        "a:b",
        "*.example.com",
    ] {
        assert_eq!(Host::parse(wrong), None, "{wrong:?}");
    }
    for wrong in ["a:0", "a:65536", "a:", "a:+80", "a:8 0", "::1:80", "[::1]80"] {
        assert_eq!(Host::parse_with_port(wrong, None), None, "{wrong:?}");
    }
}

#[test]
fn a_name_a_wildcard_and_a_port() {
    let rules = rules(&["example.com", "*.example.org", "ported.example:8443"], &[]);
    for good in [
        "example.com",
        "EXAMPLE.com.:80",
        "a.example.org",
        "a.b.example.org",
        "ported.example:8443",
    ] {
        assert!(allows(&rules, good), "{good}");
    }
    for bad in [
        "a.example.com",
        "example.org",
        "badexample.org",
        "example.com.evil.org",
        "ported.example",
        "93.184.215.14",
    ] {
        assert!(!allows(&rules, bad), "{bad}");
    }
}

#[test]
fn deny_wins() {
    let rules = rules(&["*", "10.0.0.0/8"], &["*.evil.example", "10.6.0.0/16", "x.example:25"]);
    assert!(allows(&rules, "good.example"));
    assert!(allows(&rules, "evil.example"));
    assert!(!allows(&rules, "a.evil.example"));
    assert!(allows(&rules, "10.1.2.3"));
    assert!(!allows(&rules, "10.6.2.3"));
    assert!(allows(&rules, "x.example"));
    assert!(!allows(&rules, "x.example:25"));
    assert!(rules.judge_lookup(&Host::parse("x.example").unwrap()).is_allowed);
    assert!(!rules.judge_lookup(&Host::parse("a.evil.example").unwrap()).is_allowed);
    let verdict = rules.judge(&target("a.evil.example"), Protocol::Https);
    assert_eq!(verdict.rule, "`*.evil.example` in permissions.network.deny");
}

#[test]
fn private_addresses_must_be_listed() {
    let any = rules(&["*"], &[]);
    for bad in [
        "127.0.0.1",
        "0.0.0.0",
        "10.1.1.1",
        "172.31.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.100.100.200",
        "[::1]",
        "[::]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "224.0.0.1",
        "255.255.255.255",
        "168.63.129.16",
        "[::7f00:1]",
        "0x7f.1",
    ] {
        assert!(!allows(&any, bad), "{bad}");
        let Host::Address(address) = target(bad).host else { panic!("{bad} is an address") };
        assert!(any.admit(address, 443).is_err(), "{bad}");
    }
    for good in ["1.1.1.1", "[2606:4700::1111]", "[64:ff9b::101:101]"] {
        assert!(allows(&any, good), "{good}");
    }
    let listed = rules(&["db.example", "10.0.0.7", "[fd00::]/8"], &["10.0.0.9"]);
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(listed.admit(address("10.0.0.7"), 1), Ok(()));
    assert_eq!(listed.admit(address("fd00::1"), 1), Ok(()));
    assert_eq!(
        listed.admit(address("10.0.0.8"), 1),
        Err("its address 10.0.0.8 is private, which must be listed".to_owned())
    );
    assert!(listed.admit(address("10.0.0.9"), 1).is_err());
    assert_eq!(listed.admit(address("1.1.1.1"), 1), Ok(()));
}

#[test]
fn rules_of_files_hold_for_their_protocol() {
    let mut rules = rules(&["a.example"], &[]);
    rules.add("b.example", "https", (true, "x.rules:3".to_owned())).unwrap();
    rules.add("a.example", "http", (false, "x.rules:4".to_owned())).unwrap();
    assert!(rules.judge(&target("b.example"), Protocol::Https).is_allowed);
    assert!(!rules.judge(&target("b.example"), Protocol::Socks).is_allowed);
    assert!(rules.judge(&target("a.example"), Protocol::Https).is_allowed);
    assert_eq!(rules.judge(&target("a.example"), Protocol::Http).rule, "x.rules:4");
}

#[test]
fn every_preset_is_readable_and_opens_named_ports_alone() {
    let names: Vec<_> = super::preset_names().collect();
    for wanted in [
        "npm",
        "pypi",
        "crates",
        "go",
        "maven",
        "rubygems",
        "nuget",
        "debian",
        "alpine",
        "github",
        "docker-hub",
    ] {
        assert!(names.contains(&wanted), "{wanted}");
    }
    for name in names {
        let patterns = Pattern::expand(&format!("preset:{name}")).unwrap();
        assert!(!patterns.is_empty(), "{name}");
        assert!(patterns.iter().all(|pattern| matches!(pattern.port, Some(80 | 443))), "{name}");
    }
}

#[test]
fn what_is_no_pattern_is_said() {
    let error = |text: &str| Pattern::expand(text).unwrap_err();
    assert!(matches!(error("preset:nmp"), PatternError::Preset(_)));
    assert!(error("preset:nmp").to_string().contains("`npm`"));
    for text in ["", "http://a.example", "a.*.example", "*a.example", "*.1.2.3.4", "a b"] {
        assert!(
            matches!(
                error(text),
                PatternError::Form(_) | PatternError::Port(_) | PatternError::Network(_)
            ),
            "{text}"
        );
    }
    assert_eq!(
        error("a.example:0").to_string(),
        "the port of a host must be a number from 1 to 65535, got `0`"
    );
    assert!(matches!(error("10.0.0.0/33"), PatternError::Network(_)));
}

proptest! {
    #[test]
    fn reading_never_panics_and_is_stable(text in ".{0,40}") {
        drop(Pattern::expand(&text));
        if let Some(host) = Host::parse(&text) {
            prop_assert_eq!(Host::parse(&host.to_string()), Some(host));
        }
    }

    #[test]
    fn a_mapped_address_is_judged_like_itself(bits in any::<u32>()) {
        let v4 = std::net::Ipv4Addr::from(bits);
        prop_assert_eq!(private(v4.into()), private(v4.to_ipv6_mapped().into()));
        prop_assert_eq!(private(v4.into()).is_some(), private(IpAddr::V6(std::net::Ipv6Addr::from((0x64_ff9b_u128 << 96) | u128::from(bits)))).is_some());
    }
}
