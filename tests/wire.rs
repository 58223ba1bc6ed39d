//! The Responses wire against a real server on loopback: one trial for each file in
//! `scenarios/wire`.
//!
//! `streams/NAME.sse` holds a provider's bytes, `streams/NAME.yml` what they mean; they are sent
//! whole and torn at every byte. `faults/NAME.yml` holds what the server does with each request, and
//! what the client makes of it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test reports")]

#[path = "support/responses_server.rs"]
mod responses_server;
#[path = "support/tls_server.rs"]
mod tls_server;
#[path = "support/wire_client.rs"]
mod wire_client;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use horseman::model::{FaultKind, Key, NetOptions, Responses};
use horseman::text::parse_duration;
use libtest_mimic::{Arguments, Trial};
use responses_server::{Answer, End, Part, Reply, Server, refused_url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wire_client::{Sampled, Setting, http_plan, sample};

fn main() {
    let mut trials = vec![
        Trial::test("request", || {
            the_request_has_its_shape();
            Ok(())
        }),
        Trial::test("connection", || {
            a_connection_is_used_again();
            Ok(())
        }),
        Trial::test("proxy", || {
            an_http_proxy_is_used_and_no_proxy_is_heard();
            Ok(())
        }),
        Trial::test("tls", || {
            only_the_named_roots_are_trusted();
            Ok(())
        }),
        Trial::test("setup", || {
            what_can_not_work_is_refused_before_anything_is_sent();
            Ok(())
        }),
    ];
    for (kind, run) in [("streams", stream as fn(&Path)), ("faults", fault as fn(&Path))] {
        for path in files(kind) {
            let name = path.file_stem().unwrap().to_string_lossy();
            trials.push(Trial::test(format!("{kind}/{name}"), move || {
                run(&path);
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/wire").join(kind)
}

/// The scenarios of a kind, in order of their names.
fn files(kind: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(kind)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "yml")).collect();
    files.sort();
    assert!(!files.is_empty(), "no scenarios in `{kind}`");
    files
}

fn read<T: DeserializeOwned>(path: &Path) -> T {
    let text = fs::read_to_string(path).unwrap();
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What the bytes of a stream mean.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meaning {
    /// One sentence.
    about: String,
    /// Provider's id of the response.
    #[serde(default)]
    id: String,
    /// Items as they are sent back.
    #[serde(default)]
    items: Vec<Value>,
    /// Input, cached, output, reasoning tokens.
    #[serde(default)]
    usage: [u64; 4],
    #[serde(default)]
    usage_extra: BTreeMap<String, Value>,
    incomplete: Option<String>,
    #[serde(default)]
    ignored: BTreeMap<String, u64>,
    fault: Option<Wanted>,
}

/// A fault.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    kind: String,
    /// Part of the message.
    #[serde(default)]
    message: String,
    /// What the message must not show.
    lacks: Option<String>,
    retry_after: Option<String>,
}

impl Wanted {
    fn check(&self, sampled: &Sampled, at: &str) {
        let Err(error) = &sampled.result else { panic!("{at}: {:?}", sampled.result) };
        assert_eq!(error.kind.name(), self.kind, "{at}: {}", error.message);
        assert!(error.message.contains(&self.message), "{at}: {}", error.message);
        if let Some(secret) = &self.lacks {
            assert!(!error.message.contains(secret), "{at}: {}", error.message);
        }
        let hint = self.retry_after.as_deref().map(|text| parse_duration(text).unwrap());
        if hint.is_some() {
            assert_eq!(error.retry_after, hint, "{at}");
        }
    }
}

fn stream(path: &Path) {
    let meaning: Meaning = read(path);
    let bytes = fs::read(path.with_extension("sse")).unwrap();
    let torn = |cut: usize| {
        let (head, tail) = bytes.split_at(cut);
        sse(vec![Part::Bytes(head.to_vec()), Part::Bytes(tail.to_vec())], End::Complete)
    };
    let server = Server::start((0..bytes.len()).map(torn).collect()).unwrap();
    let mut plan = http_plan(&server.url());
    plan.retry.max_attempts = 1;
    let model = Responses::new(&plan, None, &NetOptions::default()).unwrap();
    for cut in 0..bytes.len() {
        let sampled = sample(&model, &Setting::default());
        meaning.check(&sampled, &format!("{}: torn at {cut}", meaning.about));
    }
}

impl Meaning {
    fn check(&self, sampled: &Sampled, at: &str) {
        if let Some(wanted) = &self.fault {
            return wanted.check(sampled, at);
        }
        let response = sampled.result.as_ref().unwrap_or_else(|error| panic!("{at}: {error}"));
        let items: Vec<Value> = response
            .items
            .iter()
            .map(|item| serde_json::from_str(item.raw.get()).unwrap())
            .collect();
        assert_eq!(items, self.items, "{at}");
        let usage = response.usage;
        assert_eq!(
            [
                usage.input_tokens,
                usage.cached_input_tokens,
                usage.output_tokens,
                usage.reasoning_output_tokens
            ],
            self.usage,
            "{at}"
        );
        assert_eq!(response.usage_extra, self.usage_extra, "{at}");
        assert_eq!(response.incomplete, self.incomplete, "{at}");
        assert_eq!(response.ignored, self.ignored, "{at}");
        assert_eq!(response.id, self.id, "{at}");
    }
}

/// What a server does, and what the client makes of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    /// One sentence.
    about: String,
    max_attempts: u32,
    /// Default 2 s.
    idle: Option<String>,
    /// Default 20 s.
    remaining: Option<String>,
    key: Option<String>,
    #[serde(default)]
    replies: Vec<RawReply>,
    then: Then,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReply {
    /// Times in a row. Default 1.
    repeat: Option<usize>,
    /// `answer` (default), `silent`, `drop`.
    mode: Option<String>,
    /// Default 200.
    status: Option<u16>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The whole body.
    body: Option<String>,
    /// A file of `streams`, as an event stream.
    sse: Option<String>,
    /// Bytes of `sse` that are sent before the end.
    cut: Option<usize>,
    /// Comments that are sent first, with a pause after each.
    #[serde(default)]
    comments: usize,
    /// Default 30 ms.
    pause: Option<String>,
    /// `complete` (default), `cut`, `open`.
    end: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Then {
    /// What progress tells, in order.
    told: Vec<String>,
    /// Text of the final message, when there is one.
    text: Option<String>,
    fault: Option<Wanted>,
    /// Requests that the server saw.
    requests: usize,
    /// Longest time.
    within: Option<String>,
    /// Shortest time.
    takes: Option<String>,
}

fn sse(parts: Vec<Part>, end: End) -> Reply {
    let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    Reply::Answer(Answer { status: 200, headers, parts, end })
}

fn duration(text: Option<&str>, default: &str) -> Duration {
    parse_duration(text.unwrap_or(default)).unwrap()
}

impl RawReply {
    fn read(&self) -> Reply {
        match self.mode.as_deref() {
            Some("silent") => return Reply::Silent,
            Some("drop") => return Reply::Drop,
            None => {}
            Some(other) => panic!("no mode `{other}`"),
        }
        let end = match self.end.as_deref() {
            None => End::Complete,
            Some("cut") => End::Cut,
            Some("open") => End::Open,
            Some(other) => panic!("no end `{other}`"),
        };
        let pause = duration(self.pause.as_deref(), "30ms");
        let mut parts: Vec<_> = (0..self.comments)
            .flat_map(|_| [Part::Bytes(b": keep-alive\n\n".to_vec()), Part::Pause(pause)])
            .collect();
        let mut headers: Vec<_> = self.headers.clone().into_iter().collect();
        if let Some(name) = &self.sse {
            let bytes = fs::read(folder("streams").join(name)).unwrap();
            let length = self.cut.unwrap_or(bytes.len());
            parts.push(Part::Bytes(bytes[..length].to_vec()));
            headers.push(("content-type".to_owned(), "text/event-stream".to_owned()));
        }
        parts.extend(self.body.as_ref().map(|body| Part::Bytes(body.clone().into_bytes())));
        Reply::Answer(Answer { status: self.status.unwrap_or(200), headers, parts, end })
    }
}

fn fault(path: &Path) {
    let exchange: Exchange = read(path);
    let at = &exchange.about;
    let replies: Vec<_> = exchange
        .replies
        .iter()
        .flat_map(|reply| std::iter::repeat_n(reply.read(), reply.repeat.unwrap_or(1)))
        .collect();
    let is_refused = replies.is_empty();
    let server = Server::start(replies).unwrap();
    let mut plan = http_plan(&if is_refused { refused_url().unwrap() } else { server.url() });
    plan.retry.max_attempts = exchange.max_attempts;
    let key = exchange.key.clone().and_then(Key::new);
    let model = Responses::new(&plan, key, &NetOptions::default()).unwrap();
    let setting = Setting {
        idle: duration(exchange.idle.as_deref(), "2s"),
        remaining: duration(exchange.remaining.as_deref(), "20s"),
        ..Setting::default()
    };
    let sampled = sample(&model, &setting);
    assert_eq!(sampled.told, exchange.then.told, "{at}: {:?}", sampled.result);
    match (&exchange.then.text, &exchange.then.fault) {
        (Some(text), None) => {
            let response = sampled.result.as_ref().unwrap_or_else(|error| panic!("{at}: {error}"));
            let items: Vec<_> = response.items.iter().map(|item| item.raw.get()).collect();
            assert!(items.join("\n").contains(text.as_str()), "{at}: {items:?}");
        }
        (None, Some(wanted)) => wanted.check(&sampled, at),
        _ => panic!("{at}: `text` or `fault`"),
    }
    assert_eq!(server.asked().len(), exchange.then.requests, "{at}");
    let took = sampled.took;
    assert!(took <= duration(exchange.then.within.as_deref(), "10s"), "{at}: {took:?}");
    assert!(took >= duration(exchange.then.takes.as_deref(), "0s"), "{at}: {took:?}");
}

fn plain() -> Reply {
    let bytes = fs::read(folder("streams").join("plain.sse")).unwrap();
    sse(vec![Part::Bytes(bytes)], End::Complete)
}

fn the_request_has_its_shape() {
    let server = Server::start(vec![plain()]).unwrap();
    let mut plan = http_plan(&format!("{}/v1/?api-version=1", server.url()));
    plan.headers.insert("X-Extra".to_owned(), "yes".to_owned());
    let key = Key::new("sk-secret\n".to_owned());
    let model = Responses::new(&plan, key, &NetOptions::default()).unwrap();
    // Blanks that no encoder would write show that the history is not encoded again.
    let encoded = r#"{"type":"message",  "role":"user"}"#;
    let schema = json!({ "type": "object" });
    let setting = Setting {
        encoded: Some(encoded),
        schema: Some(&schema),
        effort: Some("low"),
        ..Setting::default()
    };
    sample(&model, &setting).result.unwrap();
    let asked = &server.asked()[0];
    assert_eq!(asked.line, "POST /v1/responses?api-version=1");
    let body = std::str::from_utf8(&asked.body).unwrap();
    assert!(
        body.starts_with(&format!("{{\"model\":\"some-model\",\"input\":[{encoded}],")),
        "{body}"
    );
    assert!(!body.contains("sk-secret"), "p6: {body}");
    assert_eq!(
        serde_json::from_str::<Value>(body).unwrap(),
        json!({
            "model": "some-model",
            "input": [{ "type": "message", "role": "user" }],
            "tools": [{ "type": "web_search" }],
            "tool_choice": "auto",
            "parallel_tool_calls": true,
            "reasoning": { "effort": "low" },
            "store": false,
            "stream": true,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "cache",
            "text": { "format": {
                "type": "json_schema", "name": "output", "strict": true, "schema": schema,
            } },
            "max_output_tokens": 100,
            "temperature": 0.5,
        })
    );
    let mut headers = asked.headers.clone();
    headers.retain(|(name, _)| !matches!(name.as_str(), "host" | "content-length"));
    headers.sort();
    let version = env!("CARGO_PKG_VERSION");
    let agent = format!("horseman/{version}");
    let wanted = [
        ("accept", "text/event-stream"),
        ("authorization", "Bearer sk-secret"),
        ("content-type", "application/json"),
        ("user-agent", agent.as_str()),
        ("x-extra", "yes"),
    ];
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, wanted, "nothing else is told to a provider");
}

fn a_connection_is_used_again() {
    let server = Server::start(vec![plain(), plain(), plain()]).unwrap();
    let model = Responses::new(&http_plan(&server.url()), None, &NetOptions::default()).unwrap();
    let sampled = wire_client::sample_times(&model, 3);
    assert!(sampled.iter().all(|sampled| sampled.result.is_ok()));
    let connections: Vec<_> = server.asked().iter().map(|asked| asked.connection).collect();
    assert_eq!(connections, [1, 1, 1]);
}

fn an_http_proxy_is_used_and_no_proxy_is_heard() {
    let proxy = Server::start(vec![plain()]).unwrap();
    let net = NetOptions {
        http_proxy: Some(proxy.url().replace("http://", "http://me:pw@")),
        no_proxy: Some("127.0.0.1".to_owned()),
        ..NetOptions::default()
    };
    let through = Responses::new(&http_plan("http://model.invalid/v1"), None, &net).unwrap();
    sample(&through, &Setting::default()).result.unwrap();
    let asked = &proxy.asked()[0];
    assert_eq!(asked.line, "POST http://model.invalid/v1/responses");
    assert!(asked.headers.iter().any(|(name, _)| name == "proxy-authorization"));
    assert_eq!(net.redacted()["HTTP_PROXY"], proxy.url());
    let direct = Server::start(vec![plain()]).unwrap();
    let model = Responses::new(&http_plan(&direct.url()), None, &net).unwrap();
    sample(&model, &Setting::default()).result.unwrap();
    assert_eq!((proxy.asked().len(), direct.asked().len()), (1, 1));
}

fn only_the_named_roots_are_trusted() {
    let certified = tls_server::certificate();
    let mut answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n".to_vec();
    answer.extend(fs::read(folder("streams").join("plain.sse")).unwrap());
    let url = tls_server::serve(&certified, answer, 3).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let right = path("right/a.pem", &certified.cert.pem());
    path("right/README", "no certificate");
    let wrong = path("wrong.pem", &tls_server::certificate().cert.pem());
    let ask = |net: NetOptions| {
        let mut plan = http_plan(&url);
        plan.retry.max_attempts = 1;
        sample(&Responses::new(&plan, None, &net).unwrap(), &Setting::default()).result
    };
    let file = |path: String| NetOptions { ssl_cert_file: Some(path), ..NetOptions::default() };
    ask(file(right.clone())).unwrap();
    let folders = format!("{}:{}", folder.path().display(), right.trim_end_matches("/a.pem"));
    ask(NetOptions { ssl_cert_dir: Some(folders), ..NetOptions::default() }).unwrap();
    let refused = ask(file(wrong)).unwrap_err();
    assert_eq!(refused.kind, FaultKind::Refused);
    assert!(refused.message.contains("invalid peer certificate"), "{}", refused.message);
}

fn what_can_not_work_is_refused_before_anything_is_sent() {
    let new = |url: &str, net: &NetOptions| {
        let error = Responses::new(&http_plan(url), None, net).unwrap_err();
        assert_eq!(error.kind, FaultKind::BadRequest);
        error.message
    };
    let none = NetOptions::default();
    let url = "`base_url` must be an http or https URL";
    assert_eq!(new("ftp://x", &none), format!("{url}, got `ftp://x`"));
    assert_eq!(new("http://u:secret@", &none), format!("{url}, got `http://`"));
    let file = NetOptions { ssl_cert_file: Some("/nowhere".to_owned()), ..none.clone() };
    assert!(new("https://x", &file).starts_with("`SSL_CERT_FILE` `/nowhere` can't be read"));
    let file = NetOptions { ssl_cert_file: Some(file!().to_owned()), ..none.clone() };
    assert!(new("https://x", &file).ends_with("must hold PEM certificates"));
    let proxy = NetOptions { http_proxy: Some("http://u:secret@:x".to_owned()), ..none };
    assert_eq!(new("http://x", &proxy), "`HTTP_PROXY` must be a URL, got `http://:x`");
    let mut plan = http_plan("http://x");
    plan.headers.insert("a b".to_owned(), String::new());
    let error = Responses::new(&plan, None, &NetOptions::default()).unwrap_err();
    assert_eq!(error.message, "header `a b`: no header name");
}
