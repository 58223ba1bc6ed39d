//! Listed hosts: what is reached from inside, by the doors and not beside them.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use horseman::profile::{Forward, Hosts, Network, Profile, Tier};
use horseman::sandbox::{Note, Sandbox, SandboxError};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::fixture::{Fixture, block_on};

/// A server of the host that answers every connection with a whole response.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = [0; 4096];
            drop(stream.read(&mut bytes));
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nreached"));
        }
    });
    port
}

fn listed(hosts: Hosts) -> Profile {
    Profile { tier: Tier::Namespaces, network: Network::Listed, hosts, ..Profile::default() }
}

/// Acknowledges every decision and keeps it as a line.
fn keep(mut notes: UnboundedReceiver<Note>) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    tokio::spawn(async move {
        while let Some(Note { requested, written }) = notes.recv().await {
            let verb = if requested.is_allowed { "allowed" } else { "denied" };
            let line = format!("{verb} {} {}", requested.protocol.name(), requested.target);
            kept.lock().unwrap().push(line);
            written.send(()).unwrap();
        }
    });
    lines
}

#[test]
fn listed_hosts_are_reached_and_no_others() {
    block_on(async {
        let fixture = Fixture::new();
        let (port, forwarded) = (server(), server());
        let hosts = Hosts {
            allow: vec![format!("127.0.0.1:{port}")],
            forward: vec![Forward { host: "localhost".to_owned(), port: forwarded }],
            ..Hosts::default()
        };
        let sandbox = fixture.sandbox(&listed(hosts)).await;
        let (sender, notes) = unbounded_channel();
        let lines = keep(notes);
        let sandbox = sandbox.with_record(sender);
        let ask = |url: &str| format!("curl -sS -m 5 --noproxy '' {url}");
        for (text, expected) in [
            (ask(&format!("http://127.0.0.1:{port}/")), "reached"),
            (ask(&format!("-p http://127.0.0.1:{port}/")), "reached"),
            (ask(&format!("-x socks5h://127.0.0.1:3128 http://127.0.0.1:{port}/")), "reached"),
            (
                ask("http://10.0.0.1/"),
                "network: denied 10.0.0.1:80 (a private address, which must be listed)\n",
            ),
            (
                ask("http://b.example/"),
                "network: denied b.example:80 (not in permissions.network.allow)\n",
            ),
            (ask(&format!("-x '' http://127.0.0.1:{forwarded}/")), "reached"),
            (
                format!("{} || echo no", ask(&format!("-x '' http://127.0.0.1:{port}/ 2>&-"))),
                "no\n",
            ),
            ("getent hosts c.example || echo no".to_owned(), "no\n"),
            ("cat /etc/resolv.conf".to_owned(), "nameserver 127.0.0.1\n"),
            (
                "echo $https_proxy $HTTP_PROXY".to_owned(),
                "http://127.0.0.1:3128 http://127.0.0.1:3128\n",
            ),
        ] {
            let (_, output) = fixture.run(&sandbox, &text).await;
            assert_eq!(output, expected, "{text}");
        }
        let mut lines = lines.lock().unwrap().clone();
        // A library may ask for both kinds of addresses.
        lines.dedup();
        assert_eq!(
            lines,
            [
                format!("allowed http 127.0.0.1:{port}"),
                format!("allowed https 127.0.0.1:{port}"),
                format!("allowed socks5_tcp 127.0.0.1:{port}"),
                "denied http 10.0.0.1:80".to_owned(),
                "denied http b.example:80".to_owned(),
                format!("allowed forward localhost:{forwarded}"),
                "denied dns c.example:53".to_owned(),
            ]
        );
    });
}

#[test]
fn a_check_has_hosts_of_its_own() {
    block_on(async {
        let fixture = Fixture::new();
        let port = server();
        let sandbox =
            fixture.sandbox(&Profile { tier: Tier::Namespaces, ..Profile::default() }).await;
        let hosts = Hosts { allow: vec!["127.0.0.1".to_owned()], ..Hosts::default() };
        let check = sandbox.with_network(Network::Listed, &hosts);
        let text = format!(
            "curl -sS -m 5 --noproxy '' -x http://127.0.0.1:3128 http://127.0.0.1:{port}/ 2>&1"
        );
        let (ended, output) = fixture.run(&sandbox, &text).await;
        assert_ne!(ended.exit_code, Some(0), "{output}");
        assert_eq!(fixture.run(&check, &text).await.1, "reached");
        // A tree of its own has the same network.
        let other = check.with_workspace(fixture.place.workspace.clone());
        assert_eq!(fixture.run(&other, &text).await.1, "reached");
    });
}

#[test]
fn p3_lists_that_cannot_be_held_are_refused() {
    block_on(async {
        let fixture = Fixture::new();
        for tier in [Tier::Namespaces, Tier::Landlock] {
            let hosts = Hosts { allow: vec!["not a host".to_owned()], ..Hosts::default() };
            let profile = Profile { tier, ..listed(hosts) };
            let probed = Sandbox::probe(&fixture.host, &profile, &fixture.place).await;
            let Err(SandboxError::Unenforceable { items, .. }) = probed else { panic!("{tier:?}") };
            assert_eq!(items[0].0, "network");
        }
    });
}

#[test]
fn without_namespaces_the_same_hosts_are_reached() {
    block_on(async {
        let fixture = Fixture::new();
        let (port, forwarded, other) = (server(), server(), server());
        let hosts = Hosts {
            allow: vec![format!("127.0.0.1:{port}")],
            forward: vec![Forward { host: "localhost".to_owned(), port: forwarded }],
            ..Hosts::default()
        };
        let profile = Profile { tier: Tier::Landlock, ..listed(hosts) };
        let sandbox = fixture.sandbox(&profile).await;
        let ask = |url: &str| format!("curl -sS -m 5 --noproxy '' {url}");
        for (text, expected) in [
            (ask(&format!("http://127.0.0.1:{port}/")), "reached"),
            (ask(&format!("-x socks5h://127.0.0.1:3128 http://127.0.0.1:{port}/")), "reached"),
            (ask(&format!("-x '' http://127.0.0.1:{forwarded}/")), "reached"),
            (
                ask("http://b.example/"),
                "network: denied b.example:80 (not in permissions.network.allow)\n",
            ),
            (
                format!("{} || echo no", ask(&format!("-x '' http://127.0.0.1:{other}/ 2>&-"))),
                "no\n",
            ),
        ] {
            let (_, output) = fixture.run(&sandbox, &text).await;
            assert_eq!(output, expected, "{text}");
        }
    });
}
