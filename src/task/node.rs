//! Nodes: YAML as a tree in which each key and value knows where it stands.
//!
//! In: text. Out: one [`Node`], or the first thing that makes the text no such tree. Bounds size,
//! depth and aliases. Knows nothing of task files.

use std::collections::HashMap;
use std::sync::Arc;

use granit_parser::{Event, Options, Parser, ScalarStyle, Span, Tag};

use super::complaint::{At, Complaint};

/// Largest task file in bytes. Our choice: 100 times the largest example.
pub const MAX_BYTES: usize = 1 << 20;
/// Most nodes, those that aliases repeat included. Our choice.
pub const MAX_NODES: usize = 100_000;
/// Deepest nesting, through aliases too. Our choice; keeps recursion over nodes bounded.
pub const MAX_DEPTH: usize = 64;

/// One value with its place.
#[derive(Debug)]
pub struct Node {
    /// Line, 1-based.
    pub line: u32,
    /// Column in characters, 1-based.
    pub column: u32,
    /// What it is.
    pub kind: Kind,
    /// Nodes in it, itself included, aliases counted as what they repeat.
    size: usize,
    /// Levels of nesting, itself included.
    depth: usize,
}

/// What a node is.
#[derive(Debug)]
pub enum Kind {
    /// Text with the way it was written.
    Scalar(Scalar),
    /// Values in order.
    List(Vec<Arc<Node>>),
    /// Keys and values in order, duplicates included.
    Map(Vec<(Arc<Node>, Arc<Node>)>),
}

/// A scalar as it was written.
#[derive(Debug)]
pub struct Scalar {
    /// Text after YAML's own escapes.
    pub text: String,
    /// Whether it stands without quotes, so that `1` is a number.
    pub is_plain: bool,
    /// For `|` and `>`: line and column at which the text starts.
    pub block: Option<(u32, u32)>,
}

struct Builder<'a> {
    file: &'a Arc<str>,
    text: &'a str,
    open: Vec<Open>,
    anchors: HashMap<usize, Arc<Node>>,
    nodes: usize,
    root: Option<Arc<Node>>,
}

struct Open {
    at: (u32, u32),
    anchor: usize,
    values: Vec<Arc<Node>>,
    is_map: bool,
}

/// Reads exactly one YAML document.
///
/// # Errors
///
/// One complaint: text that is no YAML, more than one document, no value at all, a tag, an alias
/// of something unfinished, or more than [`MAX_BYTES`], [`MAX_NODES`] or [`MAX_DEPTH`].
pub fn parse(file: &Arc<str>, text: &str) -> Result<Arc<Node>, Complaint> {
    let whole = At { file: Arc::clone(file), ..At::default() };
    if text.len() > MAX_BYTES {
        return Err(whole.complain(format!(
            "the file must have at most {MAX_BYTES} bytes, got {}",
            text.len()
        )));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut options = Options::default();
    options.emit_comments = false;
    let mut builder =
        Builder { file, text, open: Vec::new(), anchors: HashMap::new(), nodes: 0, root: None };
    let mut documents = 0;
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| {
            let mark = error.marker();
            let place = (clamp(mark.line()), clamp(mark.col() + 1));
            complain(file, place, format!("not YAML: {}", lower(&error.info())))
        })?;
        if matches!(event, Event::DocumentStart(..)) {
            documents += 1;
            if documents > 1 {
                let text = "the file must have one YAML document, got another one here";
                return Err(complain(file, place(&span), text.to_owned()));
            }
        }
        builder.take(event, &span)?;
    }
    builder.root.ok_or_else(|| whole.complain("empty task: the file has no text"))
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Complaint> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, open list of events")]
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span)?;
                let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded)
                    .then(|| self.block_start(span));
                let is_plain = matches!(style, ScalarStyle::Plain);
                let scalar = Scalar { text: text.into_owned(), is_plain, block };
                self.close(place(span), Kind::Scalar(scalar), anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span)?;
                self.begin(span, anchor, false)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span)?;
                self.begin(span, anchor, true)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => match self.anchors.get(&anchor).map(Arc::clone) {
                Some(node) => {
                    self.nodes += node.size;
                    self.place(node, place(span))
                }
                None => Err(self.complain(span, "an alias must not lie inside what it repeats")),
            },
            _ => Ok(()),
        }
    }

    fn begin(&mut self, span: &Span, anchor: usize, is_map: bool) -> Result<(), Complaint> {
        if self.open.len() >= MAX_DEPTH {
            return Err(self.too_deep(place(span)));
        }
        self.open.push(Open { at: place(span), anchor, values: Vec::new(), is_map });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Complaint> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let kind = if open.is_map {
            let mut pairs = Vec::with_capacity(open.values.len() / 2);
            let mut values = open.values.into_iter();
            while let (Some(key), Some(value)) = (values.next(), values.next()) {
                pairs.push((key, value));
            }
            Kind::Map(pairs)
        } else {
            Kind::List(open.values)
        };
        self.close(open.at, kind, open.anchor)
    }

    fn close(&mut self, at: (u32, u32), kind: Kind, anchor: usize) -> Result<(), Complaint> {
        let (size, depth) = measure(&kind);
        let node = Arc::new(Node { line: at.0, column: at.1, kind, size, depth });
        self.nodes += 1;
        if anchor > 0 {
            self.anchors.insert(anchor, Arc::clone(&node));
        }
        self.place(node, at)
    }

    fn place(&mut self, node: Arc<Node>, at: (u32, u32)) -> Result<(), Complaint> {
        if self.nodes > MAX_NODES {
            let text = format!("the file must have at most {MAX_NODES} values, aliases unfolded");
            return Err(complain(self.file, at, text));
        }
        if self.open.len() + node.depth > MAX_DEPTH {
            return Err(self.too_deep(at));
        }
        match self.open.last_mut() {
            Some(open) => open.values.push(node),
            None => self.root = Some(node),
        }
        Ok(())
    }

    fn refuse_tag(&self, tag: Option<&Tag>, span: &Span) -> Result<(), Complaint> {
        match tag {
            Some(_) => Err(self.complain(span, "YAML tags (`!…`) are not supported")),
            None => Ok(()),
        }
    }

    /// Line and column of a block scalar's first text, from the source itself: the parser's span
    /// starts at the indicator.
    fn block_start(&self, span: &Span) -> (u32, u32) {
        let header = span.start.line();
        let mut lines = self.text.lines().enumerate().skip(header);
        let start = lines.find(|(_, line)| !line.trim().is_empty());
        start.map_or((clamp(header + 1), 1), |(number, line)| {
            let indent = line.len() - line.trim_start_matches(' ').len();
            (clamp(number + 1), clamp(indent + 1))
        })
    }

    fn too_deep(&self, at: (u32, u32)) -> Complaint {
        complain(self.file, at, format!("values must be nested at most {MAX_DEPTH} levels deep"))
    }

    fn complain(&self, span: &Span, text: &str) -> Complaint {
        complain(self.file, place(span), text.to_owned())
    }
}

fn measure(kind: &Kind) -> (usize, usize) {
    let fold = |(size, depth): (usize, usize), node: &Node| {
        (size.saturating_add(node.size), depth.max(node.depth + 1))
    };
    match kind {
        Kind::Scalar(_) => (1, 1),
        Kind::List(values) => values.iter().fold((1, 1), |sum, node| fold(sum, node)),
        Kind::Map(pairs) => {
            pairs.iter().fold((1, 1), |sum, (key, value)| fold(fold(sum, key), value))
        }
    }
}

fn place(span: &Span) -> (u32, u32) {
    (clamp(span.start.line()), clamp(span.start.col() + 1))
}

fn clamp(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn complain(file: &Arc<str>, (line, column): (u32, u32), message: String) -> Complaint {
    At { file: Arc::clone(file), line, column, ..At::default() }.complain(message)
}

fn lower(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim_end_matches('.');
    let mut letters = line.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}
