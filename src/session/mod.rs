//! The session: one instance carried out in attempts, each a conversation of steps.
//!
//! In: an instance and the run. Out: an [`Outcome`]; everything else is in the transcript. Short on
//! purpose: each stage is a call into the module that owns it.

mod acceptance;
mod attempt;
mod budget;
mod call;
mod gate;
mod history;
mod instance;
mod prompt;
mod setup;
mod stage;
mod step;
mod traffic;
mod watch;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

pub use instance::{Batch, Equipment, Outcome, carry_out, refuse, validate};

use crate::model::{FaultKind, Model};
use crate::plan::{Instance, Prices};
use crate::policy::Policy;
use crate::run::{Run, Signal};
use crate::sandbox::Sandbox;
use crate::tool::{
    ApplyPatch, ExecCommand, StepContext, Store, ToolExecutor, UpdatePlan, WriteStdin,
};
use crate::transcript::{Event, Scope};

use budget::{Ledger, Spent};
use gate::Ground;
use history::History;
use step::Next;
use traffic::Traffic;
use watch::Watch;

/// Why a conversation is over.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    /// The model wrote its final message.
    Message(String),
    /// It wrote none, refused, or was cut off.
    GaveUp(String),
    /// A limit is spent.
    Budget(Spent),
    /// The wall clock is spent.
    Wall,
    /// The last try of a request stayed silent.
    Idle(String),
    /// No answer to be had.
    Provider {
        /// Kind.
        kind: FaultKind,
        /// Provider's text.
        message: String,
    },
    /// Denials that are fatal.
    Denied(String),
    /// The confinement failed.
    Sandbox(String),
    /// The result could not be taken or put onto a fresh tree.
    Setup(String),
    /// A signal came.
    Stopped(Signal),
    /// A fault of this program or its disk.
    Internal(String),
}

impl End {
    /// Why a call after this end is not begun.
    fn as_skip(&self) -> String {
        match self {
            Self::Budget(spent) => format!("the budget of {} is spent", spent.limit),
            Self::Denied(_) => "too much was denied".to_owned(),
            Self::Stopped(_) => "the run is being stopped".to_owned(),
            Self::Message(_)
            | Self::GaveUp(_)
            | Self::Wall
            | Self::Idle(_)
            | Self::Provider { .. }
            | Self::Sandbox(_)
            | Self::Setup(_)
            | Self::Internal(_) => "the run ends".to_owned(),
        }
    }
}

/// The ledgers of the instance and of the whole run, spent together.
#[derive(Clone, Debug)]
struct Ledgers {
    own: Rc<RefCell<Ledger>>,
    batch: Rc<RefCell<Ledger>>,
}

impl Ledgers {
    fn both<T>(&self, mut spend: impl FnMut(&mut Ledger) -> T) -> [T; 2] {
        [spend(&mut self.own.borrow_mut()), spend(&mut self.batch.borrow_mut())]
    }

    fn turn(&self) {
        self.both(Ledger::turn);
    }

    fn spent(&self) -> Option<Spent> {
        self.both(|ledger| ledger.spent()).into_iter().flatten().next()
    }

    fn call(&self) -> Option<Spent> {
        self.both(Ledger::call).into_iter().flatten().next()
    }

    fn respond(&self, usage: crate::transcript::event::Usage, prices: Option<Prices>) {
        self.both(|ledger| ledger.respond(usage, prices));
    }

    fn repeat(&self, fingerprint: String) -> Option<Spent> {
        self.own.borrow_mut().repeat(fingerprint)
    }

    fn warnings(&self) -> Vec<Spent> {
        self.both(Ledger::warnings).concat()
    }

    fn spend_wall(&self, spent: Duration) {
        self.both(|ledger| ledger.spend_wall(spent));
    }

    fn remaining(&self) -> Duration {
        let [own, batch] = self.both(|ledger| ledger.remaining());
        own.min(batch)
    }
}

/// What an attempt's conversation stands on.
struct Footing<'a> {
    workspace: &'a Path,
    cwd: &'a Path,
    env: &'a Rc<BTreeMap<String, String>>,
    sandbox: &'a Sandbox,
    traffic: &'a Rc<Traffic>,
    logs: PathBuf,
    shell: PathBuf,
    write_roots: Vec<PathBuf>,
    watch: &'a Rc<Watch>,
}

/// One conversation with the model.
struct Conversation<'a> {
    run: Rc<Run>,
    instance: &'a Instance,
    scope: Scope,
    model: &'a dyn Model,
    ground: Ground,
    tools: Vec<Rc<dyn ToolExecutor>>,
    store: Rc<RefCell<Store>>,
    template: StepContext,
    watch: Rc<Watch>,
    history: History,
    ledgers: Ledgers,
    cache_key: String,
    begun: Duration,
    steps: u32,
    calls: u32,
    denials: u32,
    denials_in_a_row: u32,
}

impl<'a> Conversation<'a> {
    fn new(
        run: &Rc<Run>,
        instance: &'a Instance,
        (model, policy, ledgers): (&'a dyn Model, Policy, Ledgers),
        footing: &Footing<'_>,
    ) -> Self {
        let store = Rc::new(RefCell::new(Store::default()));
        let template = StepContext {
            step: 0,
            workspace: footing.workspace.to_path_buf(),
            cwd: footing.cwd.to_path_buf(),
            env: Rc::clone(footing.env),
            shell: footing.shell.clone(),
            binary: run.host.binary.clone(),
            protected: instance.profile.protected.clone(),
            write_roots: footing.write_roots.clone(),
            patch_overwrite: instance.patch_overwrite,
            remaining: Duration::ZERO,
        };
        Self {
            tools: offered(instance, &store, run.clock),
            cache_key: crate::text::sha256(instance.digest.as_bytes())[..32].to_owned(),
            ground: Ground {
                run: Rc::clone(run),
                policy,
                sandbox: footing.sandbox.clone(),
                traffic: Rc::clone(footing.traffic),
                logs: footing.logs.clone(),
                chunks: Cell::new(0),
                patches: Cell::new(0),
                started: Cell::new(0),
            },
            run: Rc::clone(run),
            instance,
            scope: Scope::default(),
            model,
            store,
            template,
            watch: Rc::clone(footing.watch),
            history: History::default(),
            ledgers,
            begun: run.clock.elapsed(),
            steps: 0,
            calls: 0,
            denials: 0,
            denials_in_a_row: 0,
        }
    }

    /// Steps until the conversation is over.
    async fn converse(&mut self) -> End {
        self.begun = self.run.clock.elapsed();
        let end = loop {
            let spent = self.run.clock.elapsed().saturating_sub(self.begun);
            self.ledgers.spend_wall(spent);
            self.begun += spent;
            if let Some(signal) = self.run.stop.signal() {
                break End::Stopped(signal);
            }
            match self.ledgers.spent() {
                Some(spent) if spent.limit == "wall" => break End::Wall,
                Some(spent) => break End::Budget(spent),
                None => {}
            }
            match self.step().await {
                Next::Again => {}
                Next::Over(end) => break end,
            }
        };
        self.ledgers.spend_wall(self.run.clock.elapsed().saturating_sub(self.begun));
        self.exhausted(&end).unwrap_or(end)
    }

    /// Writes down which limit ended the conversation.
    fn exhausted(&self, end: &End) -> Option<End> {
        let spent = match end {
            End::Budget(spent) => *spent,
            End::Wall => {
                let of = self.instance.budget.wall.as_secs_f64();
                Spent { limit: "wall", used: of, of }
            }
            End::Message(_)
            | End::GaveUp(_)
            | End::Idle(_)
            | End::Provider { .. }
            | End::Denied(_)
            | End::Sandbox(_)
            | End::Setup(_)
            | End::Stopped(_)
            | End::Internal(_) => return None,
        };
        let (limit, used, of) = (spent.limit.to_owned(), spent.used, spent.of);
        let event = Event::BudgetExhausted { limit, used, of };
        self.run.transcript.append(&self.scope, event).err().map(|error| End::fault(&error))
    }

    /// What is left of the wall clock at this moment.
    fn remaining(&self) -> Duration {
        let open = self.run.clock.elapsed().saturating_sub(self.begun);
        self.ledgers.remaining().saturating_sub(open)
    }

    /// The frozen context of the step that begins.
    fn context(&self) -> StepContext {
        StepContext { step: self.steps, remaining: self.remaining(), ..self.template.clone() }
    }

    fn affordable_output(&self, prices: Prices) -> Option<u64> {
        let bytes = self.history.encoded().len();
        let [own, batch] = self.ledgers.both(|ledger| ledger.affordable_output(bytes, prices));
        match (own, batch) {
            (Some(own), Some(batch)) => Some(own.min(batch)),
            (own, batch) => own.or(batch),
        }
    }

    fn usd_spent(&self) -> Spent {
        let used = self.ledgers.own.borrow().usd();
        Spent { limit: "usd", used, of: self.instance.budget.usd.unwrap_or(used) }
    }
}

/// The tools that the task offers.
fn offered(
    instance: &Instance,
    store: &Rc<RefCell<Store>>,
    clock: crate::clock::Clock,
) -> Vec<Rc<dyn ToolExecutor>> {
    let all: [Rc<dyn ToolExecutor>; 4] = [
        Rc::new(ExecCommand { store: Rc::clone(store), clock }),
        Rc::new(WriteStdin { store: Rc::clone(store), clock }),
        Rc::new(ApplyPatch),
        Rc::new(UpdatePlan),
    ];
    let is_offered = |tool: &Rc<dyn ToolExecutor>| {
        let name = tool.name().to_owned();
        instance.tools_allow.as_ref().is_none_or(|allowed| allowed.contains(&name))
            && !instance.tools_deny.contains(&name)
    };
    all.into_iter().filter(is_offered).collect()
}
