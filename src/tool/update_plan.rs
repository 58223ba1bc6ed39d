//! `update_plan`: the model's own list of steps; kept in the record, no effect.

use serde::Deserialize;
use serde_json::json;

use crate::model::{FunctionSpec, LocalFuture, ToolCall, ToolSpec};

use super::{Gate, StepContext, ToolError, ToolExecutor, ToolResult, arguments};

/// The tool.
#[derive(Debug)]
pub struct UpdatePlan;

#[derive(Debug, Deserialize)]
struct Arguments {
    #[serde(rename = "explanation")]
    _explanation: Option<String>,
    plan: Vec<PlanStep>,
}

#[derive(Debug, Deserialize)]
struct PlanStep {
    #[serde(rename = "step")]
    _step: String,
    status: Status,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Completed,
}

impl ToolExecutor for UpdatePlan {
    fn name(&self) -> &'static str {
        "update_plan"
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec::Function(FunctionSpec {
            name: self.name().to_owned(),
            description: "Keeps a short list of steps for the work at hand. Give the whole list \
                          each time; at most one step is in progress. It has no other effect."
                .to_owned(),
            strict: false,
            parameters: json!({
                "type": "object",
                "properties": {
                    "explanation": { "type": "string" },
                    "plan": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "step": { "type": "string" },
                                "status": {
                                    "type": "string",
                                    "enum": ["pending", "in_progress", "completed"],
                                },
                            },
                            "required": ["step", "status"],
                            "additionalProperties": false,
                        },
                    },
                },
                "required": ["plan"],
                "additionalProperties": false,
            }),
        })
    }

    fn handle<'a>(
        &'a self,
        call: &'a ToolCall,
        _context: &'a StepContext,
        _gate: &'a dyn Gate,
    ) -> LocalFuture<'a, Result<ToolResult, ToolError>> {
        Box::pin(async move {
            let arguments: Arguments = arguments(self.name(), call)?;
            let active =
                arguments.plan.iter().filter(|step| step.status == Status::InProgress).count();
            if active > 1 {
                return Err(ToolError::Reply(format!(
                    "{active} steps are in progress; expected at most one"
                )));
            }
            Ok(ToolResult::text("ok", "Plan updated".to_owned()))
        })
    }
}
