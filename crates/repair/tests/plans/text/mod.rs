//! The text of plans small enough to be verified by reading.

mod any_scheme;
mod chains;
mod scattered;
mod star_and_tree;
mod sub_packetized;

use crate::planner_input::PlannerInput;

#[track_caller]
fn check(input: &str, expected: &str) {
    let text = PlannerInput::new(input).plan().to_string();
    let expected: Vec<&str> =
        expected.lines().map(|line| line.strip_prefix("        ").unwrap_or(line)).collect();
    assert_eq!(text.trim_end(), expected.join("\n").trim(), "{input}\n{text}");
}
