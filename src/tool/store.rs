//! Live commands: those that outlived their call, under the id that `write_stdin` uses.
//!
//! In: started commands. Out: the same, found again by id, until the attempt ends.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::policy::{Exec, Reader};
use crate::sandbox::Running;

/// A command of a call with its process tree.
#[derive(Debug)]
pub struct Live {
    /// Session id, from 1.
    pub session: u32,
    /// The process tree.
    pub running: Running,
    /// What was started.
    pub exec: Exec,
    /// What reads its stdin.
    pub reader: Reader,
    /// Whether its stdin is open.
    pub has_stdin: bool,
    /// Its full log.
    pub log: PathBuf,
    /// Whether its end is in the transcript.
    pub is_recorded: bool,
    /// The line that was begun and not ended: judged together with what follows it.
    pub pending: String,
}

/// The live commands of an attempt.
#[derive(Debug, Default)]
pub struct Store {
    live: BTreeMap<u32, Live>,
    last: u32,
}

impl Store {
    /// The next session id.
    pub fn next_id(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    /// Keeps a command.
    pub fn insert(&mut self, live: Live) {
        self.live.insert(live.session, live);
    }

    /// Takes a command out for as long as it is waited for.
    pub fn take(&mut self, session: u32) -> Option<Live> {
        self.live.remove(&session)
    }

    /// Takes all commands out, in order of their ids.
    pub fn drain(&mut self) -> Vec<Live> {
        std::mem::take(&mut self.live).into_values().collect()
    }

    /// Ids of the commands that can be named.
    pub fn ids(&self) -> Vec<u32> {
        self.live.keys().copied().collect()
    }
}
