//! Budgets: what an instance, or the whole run, may use up, and what is used.
//!
//! In: turns, calls, tokens and time as they are spent. Out: the first limit that is spent. Pure.

use std::time::Duration;

use crate::plan::{Budget, Prices};
use crate::transcript::event::Usage;

/// A limit that is spent, or nearly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spent {
    /// `turns`, `tool_calls`, `input_tokens`, `output_tokens`, `usd`, `wall`, `repeat_calls`.
    pub(crate) limit: &'static str,
    /// Used so far.
    pub(crate) used: f64,
    /// The limit.
    pub(crate) of: f64,
}

/// What is used of a budget.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    budget: Budget,
    turns: u64,
    tool_calls: u64,
    usage: Usage,
    usd: f64,
    wall: Duration,
    last: Option<(String, u64)>,
    warned: Vec<&'static str>,
}

impl Ledger {
    /// An untouched budget.
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            budget,
            turns: 0,
            tool_calls: 0,
            usage: Usage::default(),
            usd: 0.0,
            wall: Duration::ZERO,
            last: None,
            warned: Vec::new(),
        }
    }

    /// Tokens so far.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Cost so far in USD.
    pub(crate) fn usd(&self) -> f64 {
        self.usd
    }

    /// What is left of the wall clock.
    pub(crate) fn remaining(&self) -> Duration {
        self.budget.wall.saturating_sub(self.wall)
    }

    /// Adds wall time that was spent.
    pub(crate) fn spend_wall(&mut self, spent: Duration) {
        self.wall = self.wall.saturating_add(spent);
    }

    /// The limits with what is used of each.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    fn limits(&self) -> [Spent; 6] {
        let count = |limit, used: u64, of: Option<u64>| Spent {
            limit,
            used: used as f64,
            of: of.map_or(f64::INFINITY, |of| of as f64),
        };
        [
            count("turns", self.turns, self.budget.turns),
            count("tool_calls", self.tool_calls, self.budget.tool_calls),
            count("input_tokens", self.usage.input_tokens, self.budget.input_tokens),
            count("output_tokens", self.usage.output_tokens, self.budget.output_tokens),
            Spent { limit: "usd", used: self.usd, of: self.budget.usd.unwrap_or(f64::INFINITY) },
            Spent {
                limit: "wall",
                used: self.wall.as_secs_f64(),
                of: self.budget.wall.as_secs_f64(),
            },
        ]
    }

    /// The limit that forbids another request, if one does. Tool calls don't: they are counted one
    /// by one in [`Self::call`].
    pub(crate) fn spent(&self) -> Option<Spent> {
        self.limits()
            .into_iter()
            .filter(|spent| spent.limit != "tool_calls")
            .find(|spent| spent.used >= spent.of)
    }

    /// Limits that crossed `warn_at` since the last look.
    pub(crate) fn warnings(&mut self) -> Vec<Spent> {
        let near: Vec<Spent> = self
            .limits()
            .into_iter()
            .filter(|spent| spent.of.is_finite() && spent.used >= spent.of * self.budget.warn_at)
            .filter(|spent| spent.used > 0.0 && !self.warned.contains(&spent.limit))
            .collect();
        self.warned.extend(near.iter().map(|spent| spent.limit));
        near
    }

    /// Counts a request.
    pub(crate) fn turn(&mut self) {
        self.turns += 1;
    }

    /// Counts a tool call that is about to run; `Some` when the limit forbids it.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    pub(crate) fn call(&mut self) -> Option<Spent> {
        match self.budget.tool_calls {
            Some(of) if self.tool_calls >= of => {
                let used = self.tool_calls as f64;
                Some(Spent { limit: "tool_calls", used, of: of as f64 })
            }
            _ => {
                self.tool_calls += 1;
                None
            }
        }
    }

    /// Adds what a response used.
    pub(crate) fn respond(&mut self, usage: Usage, prices: Option<Prices>) {
        self.usage += usage;
        if let Some(prices) = prices {
            self.usd += cost(usage, prices);
        }
    }

    /// Counts the same call with the same result in a row; `Some` when the limit is reached.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    pub(crate) fn repeat(&mut self, fingerprint: String) -> Option<Spent> {
        let count = match self.last.take() {
            Some((last, count)) if last == fingerprint => count + 1,
            _ => 1,
        };
        self.last = Some((fingerprint, count));
        let of = self.budget.repeat_calls;
        (count >= of).then_some(Spent { limit: "repeat_calls", used: count as f64, of: of as f64 })
    }

    /// Output tokens that a request over `input_bytes` of history may still cost, so that the USD
    /// limit is hard: the worst case is reserved. `None`: no USD limit. `Some(0)`: nothing is left.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes stay far below 2^52 and the quotient is clamped"
    )]
    pub(crate) fn affordable_output(&self, input_bytes: usize, prices: Prices) -> Option<u64> {
        let left = self.budget.usd? - self.usd;
        // Three bytes a token is more tokens than any tokeniser makes of English or code.
        let input = input_bytes as f64 / 3.0 * prices.input / 1e6;
        if prices.output <= 0.0 {
            return Some(if left > input { u64::MAX } else { 0 });
        }
        Some(((left - input) / prices.output * 1e6).clamp(0.0, 1e12) as u64)
    }
}

/// What `usage` costs in USD.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn cost(usage: Usage, prices: Prices) -> f64 {
    let fresh = usage.input_tokens.saturating_sub(usage.cached_input_tokens);
    (fresh as f64 * prices.input
        + usage.cached_input_tokens as f64 * prices.cached_input
        + usage.output_tokens as f64 * prices.output)
        / 1e6
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Ledger;
    use crate::plan::{Budget, Prices};
    use crate::transcript::event::Usage;

    fn budget() -> Budget {
        Budget {
            turns: Some(3),
            tool_calls: Some(2),
            input_tokens: None,
            output_tokens: None,
            usd: Some(1.0),
            wall: Duration::from_mins(1),
            idle: Duration::from_secs(1),
            repeat_calls: 3,
            warn_at: 0.5,
        }
    }

    #[test]
    fn a_fourth_request_is_never_sent_with_three_turns() {
        let mut ledger = Ledger::new(budget());
        for _ in 0..3 {
            assert_eq!(ledger.spent(), None);
            ledger.turn();
        }
        assert_eq!(ledger.spent().map(|spent| spent.limit), Some("turns"));
    }

    #[test]
    fn each_limit_warns_once() {
        let mut ledger = Ledger::new(budget());
        ledger.turn();
        assert!(ledger.warnings().is_empty());
        ledger.turn();
        assert_eq!(ledger.warnings().len(), 1);
        assert!(ledger.warnings().is_empty());
    }

    #[test]
    fn calls_and_repeats_are_counted() {
        let mut ledger = Ledger::new(budget());
        assert!(ledger.call().is_none());
        assert!(ledger.call().is_none());
        assert_eq!(ledger.call().map(|spent| spent.limit), Some("tool_calls"));
        assert!(ledger.repeat("a".into()).is_none());
        assert!(ledger.repeat("a".into()).is_none());
        assert!(ledger.repeat("b".into()).is_none());
        assert!(ledger.repeat("b".into()).is_none());
        assert!(ledger.repeat("b".into()).is_some());
    }

    #[test]
    fn the_usd_limit_reserves_the_worst_case() {
        let prices = Prices { input: 3.0, cached_input: 0.3, output: 10.0 };
        let mut ledger = Ledger::new(budget());
        assert_eq!(ledger.affordable_output(300_000, prices), Some(70_000));
        let usage = Usage { input_tokens: 300_000, ..Usage::default() };
        ledger.respond(usage, Some(prices));
        assert!((ledger.usd() - 0.9).abs() < 1e-9);
        assert_eq!(ledger.affordable_output(300_000, prices), Some(0));
    }
}
