//! Setup: the commands that prepare the workspace, each with its own network and secrets.
//!
//! In: a stage with its workspace and confinement. Out: the base after them. What a step is given
//! is gone when it ends: its processes are ended, its confinement is its own, and a step that leaves
//! a secret in a file fails.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::plan::SetupPlan;
use crate::run::{Authored, Secret};
use crate::tool::clip_output;
use crate::transcript::Scope;
use crate::workspace::find_left;

use super::stage::{Early, Stage, ending};

/// Most bytes of a failed command's output in the reason.
const SHOWN: usize = 2_000;

impl Stage<'_> {
    /// Runs the setup commands and takes the base after them. `secrets` are those of each step.
    pub(super) async fn set_up(
        &mut self,
        scope: &Scope,
        mut secrets: Vec<Vec<Secret>>,
    ) -> Result<(), Early> {
        secrets.resize_with(self.instance.workspace.setup.len(), Vec::new);
        for (step, secrets) in self.instance.workspace.setup.iter().zip(secrets) {
            self.step(scope, step, &secrets).await?;
        }
        Ok(self.workspace.base().await?)
    }

    async fn step(&self, scope: &Scope, step: &SetupPlan, secrets: &[Secret]) -> Result<(), Early> {
        // A confinement of its own, with processes of its own, that ends with the step.
        let sandbox = self.sandbox.with_network(step.network, &step.hosts);
        let mut env: BTreeMap<_, _> = (*self.env).clone();
        env.extend(secrets.iter().map(|secret| (secret.name().to_owned(), secret.expose())));
        let begun = crate::clock::now();
        let authored = Authored {
            role: "setup",
            command: &step.run,
            span: &step.span,
            sandbox: &sandbox,
            cwd: &self.cwd,
            env: &env,
            secrets,
            timeout: step.timeout,
        };
        let done = authored.run(&self.run, scope).await?;
        self.put_back(scope)?;
        if done.ended.exit_code != Some(0) {
            let output = clip_output(&done.output, SHOWN);
            let how = ending(&done.ended);
            let text = format!("setup command at {} {how}: {}", step.span, output.trim_end());
            return Err(Early::setup("setup", text));
        }
        self.nothing_left(step, (secrets, begun))
    }

    /// Whoever works in the workspace later must not find the secret of a step in a file.
    fn nothing_left(
        &self,
        step: &SetupPlan,
        (secrets, begun): (&[Secret], SystemTime),
    ) -> Result<(), Early> {
        let mut places = self.workspace.writable_places();
        places.extend(self.profile.write.iter().cloned());
        for secret in secrets {
            let found = find_left(&places, begun, &secret.parts()).map_err(Early::workspace)?;
            if let Some(path) = found {
                let text = format!(
                    "setup command at {} left its secret `{}` in `{}`, which later commands read: \
                     remove it in the same step",
                    step.span,
                    secret.name(),
                    path.display()
                );
                return Err(Early::setup("setup", text));
            }
        }
        Ok(())
    }
}
