//! Finds the rows that a requirement is about.
//!
//! Called by `requirements` and `wan`.

use crate::{
    options::Group,
    row::{Row, Run},
    tool::{Direction, Tool},
};

/// The row of a tool with a setting; the first where several sizes will do.
pub(super) fn find(
    rows: &[Row],
    group: Group,
    direction: Direction,
    tool: Tool,
    channels: Option<u32>,
    bytes: Option<u64>,
) -> Option<&Row> {
    rows.iter().find(|row| {
        (row.group, row.direction, row.tool, row.channels) == (group, direction, tool, channels)
            && bytes.is_none_or(|bytes| row.bytes == bytes)
    })
}

/// The setting of GridFTP with the best median rate, and its name; of any size where none is named.
pub(super) fn best_gridftp(
    rows: &[Row],
    group: Group,
    way: Direction,
    bytes: Option<u64>,
) -> (Option<&Row>, String) {
    let best = rows
        .iter()
        .filter(|row| (row.group, row.direction, row.tool) == (group, way, Tool::GridFtp))
        .filter(|row| bytes.is_none_or(|bytes| row.bytes == bytes))
        .filter_map(|row| Some((row, row.spread(Run::rate)?.median)))
        .max_by(|(_, left), (_, right)| left.total_cmp(right))
        .map(|(row, _)| row);
    let setting = best
        .and_then(|row| row.channels)
        .map_or_else(String::new, |count| format!(" (-p {count})"));
    (best, format!("the best GridFTP{setting}"))
}
