//! `horseman rules …`: from arguments to rule sources.

use std::path::PathBuf;

use super::args::RulesCommand;
use super::host::Surroundings;
use super::print;
use super::rules::{self, Json, Printed, Question};
use crate::exit::Exit;
use crate::policy::check::Programs;
use crate::policy::{Opaque, RuleError, RuleSource};

/// Carries out a `rules` command.
pub(super) fn command(command: &RulesCommand, surroundings: &Surroundings) -> Exit {
    match command {
        RulesCommand::Check { rules, pretty, resolve_host_executables, command } => {
            let json = if *pretty { Json::Pretty } else { Json::Compact };
            let home = surroundings.host.home.as_ref().map(|home| home.to_string_lossy());
            let programs = if *resolve_host_executables {
                Programs::Resolved(home.as_deref())
            } else {
                Programs::AsWritten
            };
            with_sources(rules, surroundings, |sources| {
                rules::check(sources, command, programs, json)
            })
        }
        RulesCommand::Explain { rules, opaque, json, text } => {
            let opaque = match opaque.as_str() {
                "sandbox" => Opaque::Sandbox,
                "prompt" => Opaque::Prompt,
                "forbidden" => Opaque::Forbidden,
                other => {
                    let sentence = format!(
                        "`--opaque` must be `sandbox`, `prompt` or `forbidden`, got `{other}`"
                    );
                    print::complain_text(&sentence, None);
                    return Exit::Usage;
                }
            };
            let question = Question {
                text: text.clone(),
                opaque,
                cwd: surroundings.cwd.clone(),
                home: surroundings.host.env.get("HOME").cloned(),
                is_json: *json,
            };
            with_sources(rules, surroundings, |sources| rules::explain(sources, &question))
        }
        RulesCommand::Test { files } => with_sources(files, surroundings, rules::test),
        RulesCommand::Replay(_) => super::later("rules replay"),
    }
}

fn with_sources(
    files: &[PathBuf],
    surroundings: &Surroundings,
    work: impl FnOnce(&[RuleSource]) -> Result<Printed, RuleError>,
) -> Exit {
    let mut sources = Vec::new();
    for file in files {
        match std::fs::read_to_string(surroundings.cwd.join(file)) {
            Ok(text) => sources.push(RuleSource { name: file.display().to_string(), text }),
            Err(error) => {
                print::complain_text(&format!("rules file `{}`: {error}", file.display()), None);
                return Exit::Usage;
            }
        }
    }
    match work(&sources) {
        Ok(printed) => {
            print::data(&printed.stdout);
            if !printed.stderr.is_empty() {
                print::note(printed.stderr.trim_end());
            }
            printed.exit
        }
        Err(error) => {
            print::complain(&error, None);
            Exit::Usage
        }
    }
}
