//! What words may come to: every reading of them that the text itself gives.
//!
//! In: words and the values that variables have somewhere in the text. Out: the words as they
//! stand, and their other readings: with what is unknown left out, and with each value put in.

use std::collections::BTreeMap;

use super::{Part, Word};

/// Most readings of one command. Our choice.
const MAX_READINGS: usize = 64;
/// Most values of one variable. Our choice.
const MAX_VALUES: usize = 32;

/// Values that variables have somewhere in the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variables(BTreeMap<String, Vec<String>>);

impl Variables {
    /// Adds values; a variable keeps all values that it ever has.
    pub(crate) fn add(&mut self, name: &str, values: &[String]) {
        let known = self.0.entry(name.to_owned()).or_default();
        for value in values {
            if known.len() < MAX_VALUES && !known.contains(value) {
                known.push(value.clone());
            }
        }
    }

    /// Adds each old value with each of `tails` behind it.
    pub(crate) fn append(&mut self, name: &str, tails: &[String]) {
        let old = self.0.get(name).cloned().unwrap_or_default();
        let joined: Vec<String> = old
            .iter()
            .flat_map(|head| tails.iter().map(move |tail| format!("{head}{tail}")))
            .collect();
        self.add(name, tails);
        self.add(name, &joined);
    }

    fn get(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

/// One argument of a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arg {
    /// Its text; the source when it is unknown.
    pub(crate) text: String,
    /// How sure it is.
    pub(crate) kind: ArgKind,
}

/// How sure an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgKind {
    /// It is this text.
    Known,
    /// It is this text unless files match it as a pattern.
    Glob,
    /// Known only when it runs.
    Unknown,
}

impl Arg {
    /// An argument that is known.
    pub(crate) fn known(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: ArgKind::Known }
    }

    /// An argument that is known only when it runs, with the source that stands for it.
    pub(crate) fn unknown(source: impl Into<String>) -> Self {
        Self { text: source.into(), kind: ArgKind::Unknown }
    }

    /// Its text, if it is certain.
    pub(crate) fn certain(&self) -> Option<&str> {
        (self.kind == ArgKind::Known).then_some(self.text.as_str())
    }
}

/// Readings of a command's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readings {
    /// The words as they stand.
    pub(crate) plain: Vec<Arg>,
    /// Other readings; empty when everything is known.
    pub(crate) others: Vec<Vec<Arg>>,
    /// Whether there are more readings than are kept.
    pub(crate) is_cut: bool,
}

impl Readings {
    /// Texts of readings that are one argument.
    pub(crate) fn single_words(&self) -> Vec<String> {
        self.all()
            .filter_map(|reading| match reading {
                [only] => only.certain().map(ToOwned::to_owned),
                _ => None,
            })
            .collect()
    }

    /// Known arguments of all readings.
    pub(crate) fn split_words(&self) -> Vec<String> {
        self.all().flatten().filter_map(|arg| arg.certain().map(ToOwned::to_owned)).collect()
    }

    fn all(&self) -> impl Iterator<Item = &[Arg]> {
        std::iter::once(self.plain.as_slice()).chain(self.others.iter().map(Vec::as_slice))
    }
}

/// Returns the readings of `words`.
pub(crate) fn readings(words: &[Word], variables: &Variables) -> Readings {
    let plain: Vec<Arg> = words.iter().map(plain).collect();
    let choices: Vec<Vec<Choice>> =
        words.iter().flat_map(|word| &word.parts).map(|part| choices(part, variables)).collect();
    if choices.iter().all(Vec::is_empty) {
        return Readings { plain, ..Readings::default() };
    }
    let total = choices
        .iter()
        .filter(|choices| !choices.is_empty())
        .try_fold(1_usize, |total, choices| total.checked_mul(choices.len()))
        .unwrap_or(usize::MAX);
    let mut others = Vec::new();
    for number in 0..total.min(MAX_READINGS) {
        // When there are too many, each part counts up by itself, so that each value is tried.
        let mut left = number;
        let mut parts = choices.iter().map(|choices| {
            if choices.is_empty() {
                return None;
            }
            let at = left % choices.len();
            if total <= MAX_READINGS {
                left /= choices.len();
            }
            choices.get(at)
        });
        let reading: Vec<Arg> = words.iter().flat_map(|word| spell(word, &mut parts)).collect();
        if !others.contains(&reading) && reading != plain {
            others.push(reading);
        }
    }
    Readings { plain, others, is_cut: total > MAX_READINGS }
}

/// What stands in for a part that isn't known.
#[derive(Clone, Debug)]
struct Choice {
    text: String,
    splits: bool,
}

fn choices(part: &Part, variables: &Variables) -> Vec<Choice> {
    let (values, is_quoted) = match part {
        Part::Text(_) | Part::Glob(_) => return Vec::new(),
        Part::Parameter { name, alternative, is_quoted } => {
            let mut values = vec![String::new()];
            if name == "IFS" {
                values.push(" ".to_owned());
            }
            values.extend(alternative.iter().cloned());
            values.extend(variables.get(name).iter().cloned());
            (values, *is_quoted)
        }
        Part::Substitution { value, is_quoted } => {
            (std::iter::once(String::new()).chain(value.clone()).collect(), *is_quoted)
        }
        Part::Dynamic { is_quoted } => (vec![String::new()], *is_quoted),
    };
    values.into_iter().map(|text| Choice { text, splits: !is_quoted }).collect()
}

fn plain(word: &Word) -> Arg {
    let mut text = String::new();
    let mut kind = ArgKind::Known;
    for part in &word.parts {
        match part {
            Part::Text(piece) => text.push_str(piece),
            Part::Glob(piece) => {
                text.push_str(piece);
                kind = ArgKind::Glob;
            }
            Part::Parameter { .. } | Part::Substitution { .. } | Part::Dynamic { .. } => {
                return Arg::unknown(crate::text::clip(&word.raw, 400));
            }
        }
    }
    Arg { text, kind }
}

/// Spells `word` with the next choice for each of its unknown parts. Unquoted values split into
/// words at blanks; a word that comes to nothing is none, unless it is quoted.
fn spell<'a>(word: &Word, choices: &mut impl Iterator<Item = Option<&'a Choice>>) -> Vec<Arg> {
    let mut out: Vec<Arg> = Vec::new();
    let mut text = String::new();
    let mut kind = ArgKind::Known;
    let mut exists = word.is_quoted;
    for part in &word.parts {
        let choice = choices.next().flatten();
        match part {
            Part::Text(piece) => {
                text.push_str(piece);
                exists = true;
            }
            Part::Glob(piece) => {
                text.push_str(piece);
                kind = ArgKind::Glob;
                exists = true;
            }
            Part::Parameter { .. } | Part::Substitution { .. } | Part::Dynamic { .. } => {
                let Some(choice) = choice else { continue };
                if !choice.splits {
                    text.push_str(&choice.text);
                    exists = true;
                    continue;
                }
                for (at, piece) in choice.text.split([' ', '\t', '\n']).enumerate() {
                    if at > 0 && (exists || !text.is_empty()) {
                        out.push(Arg { text: std::mem::take(&mut text), kind });
                        kind = ArgKind::Known;
                        exists = false;
                    }
                    text.push_str(piece);
                    exists |= !piece.is_empty();
                }
            }
        }
    }
    if exists || !text.is_empty() {
        out.push(Arg { text, kind });
    }
    out
}
