//! The published mask (P10): what may differ between two runs of the same plan, made equal.
//!
//! In: lines, their blobs, and the places that lie elsewhere each time. Out: the masked lines,
//! chained anew, with masked blobs under their new names. Pure. The original chain is checked
//! before masking, by [`verify`](super::chain::verify).
//!
//! Masked are: `ts at_ms run pid prev`, every number under a key that ends in `_ms`, the seconds
//! of `Wall time: N seconds`, the run's id (8 bytes or more) and the given places inside any text or blob, and the
//! digest and size of each blob.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::GENESIS;
use super::chain::{FOREIGN, blobs_in, own_fields};
use super::event::Blob;
use crate::text;

/// Bytes of the shortest run id that is masked inside texts; ours have a time and a random part. A
/// shorter one is likely to be part of other words.
const SHORTEST_RUN: usize = 8;

/// A place that lies elsewhere in each run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path of this run; absolute.
    pub path: String,
    /// What stands for it, for example `<workspace>`.
    pub name: String,
}

/// A masked transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Masked {
    /// Lines without newline, chained anew.
    pub lines: Vec<String>,
    /// Masked blobs by their new digest.
    pub blobs: BTreeMap<String, Vec<u8>>,
}

/// Masks `lines`, complete lines of one transcript.
///
/// `blob` returns the bytes of a blob; one that it doesn't know keeps its name. Beside `places`,
/// the private state folder of the run (`…/horseman-UID/RUN`) is found in the lines and becomes
/// `<state>`. Lines that are no JSON objects are kept as they are.
pub fn mask(lines: &[String], blob: &dyn Fn(&Blob) -> Option<Vec<u8>>, places: &[Place]) -> Masked {
    let parsed: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap_or_default()).collect();
    let rules = Rules::new(&parsed, places);
    let mut names = BTreeMap::new();
    let mut blobs = BTreeMap::new();
    for line in &parsed {
        for (_, value) in own_fields(line) {
            blobs_in(value, &mut |found| {
                if names.contains_key(&found.sha256) {
                    return;
                }
                let Some(bytes) = blob(&found) else { return };
                let bytes = rules.bytes(&bytes);
                let sha256 = text::sha256(&bytes);
                names.insert(
                    found.sha256,
                    Blob { sha256: sha256.clone(), bytes: bytes.len() as u64 },
                );
                blobs.insert(sha256, bytes);
            });
        }
    }
    let mut prev = GENESIS.to_owned();
    let mut masked = Vec::with_capacity(lines.len());
    for (line, original) in parsed.into_iter().zip(lines) {
        let Value::Object(mut envelope) = line else {
            masked.push(original.clone());
            continue;
        };
        rules.envelope(&mut envelope, &names);
        envelope.insert("prev".to_owned(), Value::String(prev));
        let line = Value::Object(envelope).to_string();
        prev = text::sha256(line.as_bytes());
        masked.push(line);
    }
    Masked { lines: masked, blobs }
}

/// Texts to replace, longest first, and what replaces them.
struct Rules {
    texts: Vec<(String, String)>,
}

impl Rules {
    fn new(lines: &[Value], places: &[Place]) -> Self {
        let run = lines.first().and_then(|line| line.get("run")).and_then(Value::as_str);
        let run = run.unwrap_or_default();
        let mut texts: Vec<(String, String)> = Vec::new();
        for place in places {
            texts.push((place.path.clone(), place.name.clone()));
        }
        if let Some(state) = state_folder(lines, run) {
            texts.push((state, "<state>".to_owned()));
        }
        // A request body holds the same texts as JSON.
        for (path, name) in texts.clone() {
            let quoted = Value::String(path.clone()).to_string();
            let quoted = quoted.trim_matches('"').to_owned();
            if quoted != path {
                texts.push((quoted, name));
            }
        }
        if run.len() >= SHORTEST_RUN {
            texts.push((run.to_owned(), "<run>".to_owned()));
        }
        texts.retain(|(from, _)| !from.is_empty() && from != "/");
        texts.sort_by(|left, right| right.0.len().cmp(&left.0.len()).then(left.cmp(right)));
        texts.dedup();
        Self { texts }
    }

    fn envelope(&self, envelope: &mut Map<String, Value>, names: &BTreeMap<String, Blob>) {
        for (key, value) in envelope.iter_mut() {
            match key.as_str() {
                "ts" => *value = "1970-01-01T00:00:00Z".into(),
                "at_ms" => *value = 0.into(),
                "run" => *value = "<run>".into(),
                "event" => {
                    for (key, value) in value.as_object_mut().into_iter().flatten() {
                        if !FOREIGN.contains(&key.as_str()) {
                            rename(value, names);
                        }
                        self.value(key, value);
                    }
                }
                _ => {}
            }
        }
    }

    /// Masks `value`, which stands under `key`.
    fn value(&self, key: &str, value: &mut Value) {
        match value {
            Value::Number(_) if key == "pid" || key.ends_with("_ms") => *value = 0.into(),
            Value::String(text) => {
                if let Ok(masked) = String::from_utf8(self.bytes(text.as_bytes())) {
                    *text = masked;
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.value("", value)),
            Value::Object(map) => {
                map.iter_mut().for_each(|(key, value)| self.value(key, value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = wall_times(bytes);
        for (from, to) in &self.texts {
            bytes = replace(&bytes, from.as_bytes(), to.as_bytes());
        }
        bytes
    }
}

/// The run's private state folder, as the working folder of one of its processes shows it.
fn state_folder(lines: &[Value], run: &str) -> Option<String> {
    if run.is_empty() {
        return None;
    }
    let end = format!("/{run}");
    lines.iter().filter_map(|line| line.get("event")?.get("cwd")?.as_str()).find_map(|cwd| {
        let base = cwd.find("/horseman-")?;
        let at = base + cwd[base..].find(&end)? + end.len();
        (at == cwd.len() || cwd[at..].starts_with('/')).then(|| cwd[..at].to_owned())
    })
}

/// Puts the new name and size where `value` names a blob.
fn rename(value: &mut Value, names: &BTreeMap<String, Blob>) {
    match value {
        Value::Object(map) => {
            let sha256 = map.get("sha256").and_then(Value::as_str);
            let new = sha256.filter(|_| map.len() == 2).and_then(|sha256| names.get(sha256));
            match new {
                Some(blob) => {
                    map.insert("sha256".to_owned(), blob.sha256.clone().into());
                    map.insert("bytes".to_owned(), blob.bytes.into());
                }
                None => map.values_mut().for_each(|value| rename(value, names)),
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Makes the seconds of `Wall time: N seconds` zero.
fn wall_times(bytes: &[u8]) -> Vec<u8> {
    const BEFORE: &[u8] = b"Wall time: ";
    const AFTER: &[u8] = b" seconds";
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = find(rest, BEFORE) {
        let (head, tail) = rest.split_at(at + BEFORE.len());
        out.extend_from_slice(head);
        let number = tail.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
        if number > 0 && tail[number..].starts_with(AFTER) {
            out.push(b'0');
            rest = &tail[number..];
        } else {
            rest = tail;
        }
    }
    out.extend_from_slice(rest);
    out
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = find(rest, from) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    out.extend_from_slice(rest);
    out
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    let first = *what.first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|&byte| byte == first) {
        if bytes[from + at..].starts_with(what) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::{Value, json};

    use super::{Masked, Place, mask};
    use crate::text;
    use crate::transcript::GENESIS;

    /// Two lines of one run, as two machines would write them.
    fn run(id: &str, base: &str, wall: &str) -> Masked {
        let output = format!("Chunk ID: 1\nWall time: {wall} seconds\n{base}/ws/a: Wall time: x");
        let sha256 = text::sha256(output.as_bytes());
        let state = format!("{base}/horseman-7/{id}");
        let lines = [
            json!({ "v": 1, "seq": 0, "at_ms": wall.len(), "ts": id, "run": id, "event": {
                "type": "process.started", "cwd": format!("{state}/attempt-1"),
                "argv": ["bash", format!("{base}/ws/run.sh {state}x")],
            }, "prev": GENESIS }),
            json!({ "v": 1, "seq": 1, "at_ms": 9, "ts": id, "run": id, "event": {
                "type": "call.completed", "status": "ok", "wall_ms": id.len(), "pid": base.len(),
                "output": { "sha256": sha256, "bytes": output.len() },
                "item": { "sha256": "kept", "bytes": 3 },
            }, "prev": base }),
        ];
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        let blobs = HashMap::from([(sha256, output.into_bytes())]);
        let workspace = Place { path: format!("{base}/ws"), name: "<workspace>".into() };
        mask(&lines, &|blob| blobs.get(&blob.sha256).cloned(), &[workspace])
    }

    #[test]
    fn p10_two_runs_of_the_same_plan_are_equal_after_the_mask() {
        let one = run("20261130-1", "/tmp", "0.0312");
        let two = run("20270101-22", "/var/tmp/deep \"er", "12.5");
        assert_eq!(one, two);
        let blob = String::from_utf8(one.blobs.values().next().unwrap().clone()).unwrap();
        assert_eq!(blob, "Chunk ID: 1\nWall time: 0 seconds\n<workspace>/a: Wall time: x");
        let first: Value = serde_json::from_str(&one.lines[0]).unwrap();
        assert_eq!(first["event"]["argv"][1], "<workspace>/run.sh <state>x");
        let second: Value = serde_json::from_str(&one.lines[1]).unwrap();
        assert_eq!(second["prev"], text::sha256(one.lines[0].as_bytes()));
        assert_eq!(second["event"]["item"]["bytes"], 3);
        assert_eq!(second["event"]["output"]["sha256"], *one.blobs.keys().next().unwrap());
    }

    #[test]
    fn p10_masking_twice_changes_nothing_more_and_other_differences_stay() {
        let once = run("r-1", "/tmp", "1");
        let blobs = once.blobs.clone();
        let twice = mask(&once.lines, &|blob| blobs.get(&blob.sha256).cloned(), &[]);
        assert_eq!(once, twice);
        assert!(once.lines[0].contains("\"bash\""));
    }
}
