//! `report.json`: the report as it is.
//!
//! In: a report. Out: indented JSON. Pure. Its schema is published beside this file.

use super::Report;

/// Renders `report`, with a newline at the end.
///
/// # Errors
///
/// What the JSON writer says; a report that [`fold`](super::fold::fold) made always renders.
pub fn render(report: &Report) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    Ok(text)
}
