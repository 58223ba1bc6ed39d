//! What of the network a task asks for.
//!
//! In: nodes. Out: `none`, `full`, or lists whose entries are right in form. Knows nothing of who
//! enforces them.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::declare::object;
use super::node::{Kind, Node};
use super::read::{Merge, Read, Reader, found, word};
use crate::policy::hosts::{Host, Pattern};
use crate::profile::{Forward, Hosts, NAMES_PORT, PROXY_PORT};

/// What of the network is reachable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NetworkAccess {
    /// Nothing.
    #[default]
    None,
    /// These hosts and services.
    Listed(Hosts),
    /// Everything.
    Full,
}

/// A pattern of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostText(pub String);

/// A service outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardText(pub Forward);

object! {
    /// Hosts that are reachable, and host services. Programs reach the hosts through a proxy that
    /// the usual variables name; SSH has no way out.
    pub struct NetworkList {
        /// Hosts that are reachable: `example.com` alone, `*.example.com` the names below it, `*`
        /// every name and public address, `10.0.0.7`, `10.0.0.0/8`, `preset:npm`; each with `:PORT`
        /// for one port alone. Private addresses are reached only where an address or network
        /// names them.
        pub allow: Option<Vec<HostText>>,
        /// Hosts that are not; they win.
        pub deny: Option<Vec<HostText>>,
        /// Host services reachable inside at the same port of localhost: `5432`, `db:6379`.
        pub forward: Option<Vec<ForwardText>>,
    }
}

impl Merge for NetworkAccess {}

impl Read for NetworkAccess {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        if !matches!(node.kind, Kind::Map(_)) {
            let word = word(node, &["none", "full"], reader)?;
            return Some(if word == "none" { Self::None } else { Self::Full });
        }
        let list = NetworkList::read(node, reader)?;
        if list == NetworkList::default() {
            reader.expected(node, "`none`, `full`, or a mapping with `allow`, `deny` or `forward`");
            return None;
        }
        let texts = |list: Option<Vec<HostText>>| -> Vec<String> {
            list.into_iter().flatten().map(|text| text.0).collect()
        };
        let hosts = Hosts {
            allow: texts(list.allow),
            deny: texts(list.deny),
            forward: list.forward.into_iter().flatten().map(|forward| forward.0).collect(),
            rules: Vec::new(),
        };
        if let Some(host) = hosts.allow.iter().find(|host| hosts.deny.contains(host)) {
            let text = format!("`{}` both allows and denies `{host}`", reader.path());
            reader.complain(node, text);
        }
        let ports = hosts.forward.iter().map(|forward| forward.port);
        if let Some(port) =
            ports.clone().find(|port| ports.clone().filter(|p| p == port).count() > 1)
        {
            let text = format!("`{}.forward` has port {port} twice", reader.path());
            reader.complain(node, text);
        }
        Some(Self::Listed(hosts))
    }
}

impl JsonSchema for NetworkAccess {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NetworkAccess".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let list = generator.subschema_for::<NetworkList>();
        json_schema!({
            "description": "What of the network is reachable.",
            "oneOf": [{ "enum": ["none", "full"] }, list],
        })
    }
}

impl Read for HostText {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = reader.text(node, "a host, such as `example.com`")?;
        if let Err(error) = Pattern::expand(text) {
            let text = format!("{}: {error}", reader.name());
            reader.complain(node, text);
            return None;
        }
        Some(Self(text.trim().to_owned()))
    }
}

impl JsonSchema for HostText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HostText".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

impl Read for ForwardText {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let expected = "a port, or `HOST:PORT`, of a service outside";
        let text = match &node.kind {
            Kind::Scalar(scalar) => scalar.text.trim(),
            Kind::List(_) | Kind::Map(_) => {
                reader.expected(node, expected);
                return None;
            }
        };
        let is_port = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let whole = if is_port { format!("localhost:{text}") } else { text.to_owned() };
        match Host::parse_with_port(&whole, None) {
            Some((_, port @ (NAMES_PORT | PROXY_PORT))) => {
                let text = format!("{} can't be port {port}, which the proxy uses", reader.name());
                reader.complain(node, text);
                None
            }
            Some((host, port)) => Some(Self(Forward { host: host.to_string(), port })),
            None => {
                let text = format!("{} must be {expected}, got {}", reader.name(), found(node));
                reader.complain(node, text);
                None
            }
        }
    }
}

impl JsonSchema for ForwardText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ForwardText".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"] })
    }
}
