use std::time::Duration;

use serde_json::{Value, json};

use super::{Script, ScriptError};
use crate::model::{
    FaultKind, FunctionSpec, Item, ItemKind, Model as _, ModelError, Payload, Progress, Request,
    Response, ToolCall, ToolSpec,
};

fn encode(items: &[Item]) -> String {
    items.iter().map(|item| item.raw.get()).collect::<Vec<_>>().join(",")
}

/// What one request gave, and the names of what was told on the way.
struct Asked {
    result: Result<Response, ModelError>,
    told: Vec<String>,
    body: Value,
}

fn ask(script: &Script, items: &[Item]) -> Asked {
    let tools = [ToolSpec::Function(FunctionSpec {
        name: "exec_command".to_owned(),
        description: String::new(),
        strict: false,
        parameters: json!({}),
    })];
    let encoded = encode(items);
    let request = Request {
        model: "some-model",
        effort: None,
        max_output_tokens: None,
        temperature: None,
        items,
        encoded: &encoded,
        tools: &tools,
        schema: None,
        cache_key: "differs between runs",
        remaining: Duration::from_secs(5),
        idle: Duration::from_millis(50),
    };
    let mut told = Vec::new();
    let mut body = Value::Null;
    let mut progress = |event: Progress<'_>| match event {
        Progress::Requested { r#try, body: bytes } => {
            body = serde_json::from_slice(bytes).unwrap();
            told.push(format!("requested {try}", r#try = r#try));
        }
        Progress::Failed { r#try, error, retried } => {
            let kind = error.kind.name();
            told.push(format!("failed {try} {kind} {retried}", r#try = r#try));
        }
        Progress::Waiting { wait, cause, .. } => told.push(format!("waiting {wait:?} {cause}")),
        Progress::Item(_) => told.push("item".to_owned()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let result = runtime.block_on(script.sample(request, &mut progress));
    Asked { result, told, body }
}

fn read(text: &str) -> Script {
    Script::read("s.yml", text).unwrap()
}

fn call(id: &str) -> ToolCall {
    ToolCall {
        call_id: id.to_owned(),
        name: "exec_command".to_owned(),
        namespace: None,
        payload: Payload::Function("{}".to_owned()),
    }
}

#[test]
fn a_step_becomes_items_in_the_promised_order() {
    let script = read(
        "- items: [{ type: odd, id: x, n: 1 }]\n  patch: |\n    *** Begin Patch\n  calls:\n    \
         - { tool: exec_command, arguments: { cmd: ls, b: 1 } }\n    \
         - { tool: exec_command, raw: '{\"cmd' }\n    \
         - { tool: free, input: text, id: c9 }\n  say: hello\n  reasoning: think\n  \
         refusal: no\n  usage: { input_tokens: 3, output_tokens: 2 }\n  incomplete: length\n",
    );
    let asked = ask(&script, &[Item::message("user", "go")]);
    let response = asked.result.unwrap();
    let raw: Vec<Value> =
        response.items.iter().map(|item| serde_json::from_str(item.raw.get()).unwrap()).collect();
    assert_eq!(
        raw,
        [
            json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "think"}]}),
            json!({"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": "hello"}]}),
            json!({"type": "message", "role": "assistant",
                "content": [{"type": "refusal", "refusal": "no"}]}),
            json!({"type": "function_call", "call_id": "call_1", "name": "exec_command",
                "arguments": "{\"cmd\":\"ls\",\"b\":1}"}),
            json!({"type": "function_call", "call_id": "call_2", "name": "exec_command",
                "arguments": "{\"cmd"}),
            json!({"type": "custom_tool_call", "call_id": "c9", "name": "free", "input": "text"}),
            json!({"type": "custom_tool_call", "call_id": "call_3", "name": "apply_patch",
                "input": "*** Begin Patch\n"}),
            json!({"type": "odd", "n": 1}),
        ]
    );
    assert!(matches!(&response.items[5].kind, ItemKind::Call(call) if call.name == "free"));
    assert_eq!((response.usage.input_tokens, response.usage.output_tokens), (3, 2));
    assert_eq!(response.incomplete.as_deref(), Some("length"));
    assert_eq!(asked.told[0], "requested 1");
    assert_eq!(asked.told.len(), 9);
    let keys: Vec<_> = asked.body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["model", "input", "tools"], "p10: nothing that differs between runs");
}

#[test]
fn expectations_see_what_the_model_is_told_and_nothing_it_said_itself() {
    let history = [
        Item::message("user", "the prompt"),
        Item::read(json!({"type": "function_call", "call_id": "a", "name": "exec_command",
            "arguments": "{\"cmd\":\"own words\"}"}))
        .unwrap(),
        Item::output(&call("a"), "README.md\nsrc"),
    ];
    for (expect, unmet) in [
        ("{ contains: [the prompt, README.md] }", None),
        ("{ contains: [own words] }", Some("expected a text with `own words`, found:\nthe prompt")),
        ("{ lacks: [own words] }", None),
        ("{ lacks: [prompt] }", Some("expected no text with `prompt`, found:\nthe prompt")),
        ("{ output: [{ call: a, contains: [src], lacks: [x] }] }", None),
        ("{ output: [{ call: a, equals: \"README.md\\nsrc\" }] }", None),
        (
            "{ output: [{ call: a, equals: src }] }",
            Some("expected the output of `a` to equal `src`, found:\nREADME.md\nsrc"),
        ),
        (
            "{ output: [{ call: a, lacks: [src] }] }",
            Some("expected the output of `a` to lack `src`"),
        ),
        (
            "{ output: [{ call: b, lacks: [src] }] }",
            Some("expected one output of `b`, found 0; there are outputs of: a"),
        ),
        ("{ tools: [exec_command], tools_lack: [web_search], items: 3, model: some-model }", None),
        ("{ tools: [] }", Some("expected tools ``, found `exec_command`")),
        ("{ tools_lack: [exec_command] }", Some("expected no tool `exec_command`, found it")),
        ("{ items: 2 }", Some("expected items `2`, found `3`")),
        ("{ model: other }", Some("expected model `other`, found `some-model`")),
        ("{ schema: true }", Some("expected schema `true`, found `false`")),
    ] {
        let script = read(&format!("- say: skipped\n- expect: {expect}\n  say: ok\n"));
        ask(&script, &[]).result.unwrap();
        let asked = ask(&script, &history);
        match (asked.result, unmet) {
            (Ok(_), None) => {}
            (Err(error), Some(unmet)) => {
                assert_eq!(error.kind, FaultKind::Script, "{expect}");
                let wanted = format!("script `s.yml:2`: step 2: {unmet}");
                assert!(error.message.starts_with(&wanted), "{expect}: {}", error.message);
                assert_eq!(asked.told, ["requested 1", "failed 1 script false"]);
            }
            (result, _) => panic!("{expect}: {result:?}"),
        }
    }
}

#[test]
fn faults_consume_steps_and_retries_are_told() {
    let script = read(
        "- fault: { kind: overloaded, status: 503, message: busy }\n\
         - fault: { kind: rate-limit, retry_after: 5ms }\n- say: done\n\
         - fault: { kind: auth, status: 401 }\n- say: never\n- fault: { kind: refused }\n",
    );
    let asked = ask(&script, &[]);
    assert!(asked.result.is_ok());
    assert_eq!(
        asked.told,
        [
            "requested 1",
            "failed 1 overloaded true",
            "requested 2",
            "failed 2 rate-limit true",
            "waiting 5ms retry-after",
            "requested 3",
            "item"
        ]
    );
    let auth = ask(&script, &[]);
    assert_eq!(auth.told, ["requested 1", "failed 1 auth false"]);
    assert_eq!(auth.result.unwrap_err().status, Some(401));
    ask(&script, &[]).result.unwrap();
    assert_eq!(ask(&script, &[]).result.unwrap_err().kind, FaultKind::Refused);
    let spent = ask(&script, &[]).result.unwrap_err();
    assert_eq!(spent.kind, FaultKind::Script);
    assert_eq!(spent.message, "script `s.yml`: asked for step 7 of 6");
}

#[test]
fn a_delay_beyond_idle_is_silence() {
    let asked = ask(&read("- { delay: 1m, say: late }\n"), &[]);
    assert_eq!(asked.result.unwrap_err().kind, FaultKind::Idle);
    assert!(ask(&read("- { delay: 1ms, say: late }\n"), &[]).result.is_ok());
}

#[test]
fn what_the_format_does_not_have_is_refused_with_its_line() {
    for (text, error) in [
        ("", "`s.yml`: expected a list of steps, found none"),
        ("[]", "`s.yml`: expected a list of steps, found none"),
        ("- say: a\n- sya: b\n", "`s.yml:2:3`: unknown field `sya`"),
        ("- calls: [{ tool: t, args: {} }]\n", "`s.yml:1:22`: unknown field `args`"),
        ("- calls: [{ id: t }]\n", "`s.yml:1:"),
        ("- say: [1]\n", "`s.yml:1:8`"),
        (
            "- calls: [{ tool: t, raw: a, input: b }]\n",
            "`s.yml:1`: step 1: call of `t`: `arguments`, `raw` and `input` exclude each other",
        ),
        (
            "- say: x\n- fault: { kind: nope }\n",
            "`s.yml:2`: step 2: `fault.kind` must be one of auth, quota, rate-limit",
        ),
        (
            "- { fault: { kind: auth }, say: x }\n",
            "`s.yml:1`: step 1: `fault` excludes everything but `expect` and `delay`",
        ),
        ("- delay: 5\n", "`s.yml:1`: step 1: `delay` must be a duration such as `250ms`, got `5`"),
        ("- items: [{ no: type }]\n", "`s.yml:1`: step 1: an item has no `type`"),
        (
            "- expect: { output: [{ call: a }] }\n",
            "`s.yml:1`: step 1: `output` of `a` needs `contains`, `lacks` or `equals`",
        ),
    ] {
        let found = Script::read("s.yml", text).map(|_| ()).unwrap_err();
        assert!(found.to_string().starts_with(error), "{text:?}\n{found}\n{error}");
        assert!(!matches!(found, ScriptError::Shape { line: 0, .. }));
    }
}
