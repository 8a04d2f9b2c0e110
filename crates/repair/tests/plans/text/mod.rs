//! The text of plans small enough to be verified by reading.

mod any_scheme;
mod chains;
mod scattered;
mod star_and_tree;
mod sub_packetized;

use repair::StripeId;

use crate::planner_input::PlannerInput;

#[track_caller]
fn check(input: &str, expected: &str) {
    let text = PlannerInput::new(input).plan().to_string();
    let expected: Vec<&str> =
        expected.lines().map(|line| line.strip_prefix("        ").unwrap_or(line)).collect();
    assert_eq!(text.trim_end(), expected.join("\n").trim(), "{input}\n{text}");
}

#[test]
fn the_name_of_a_stripe_begins_no_line() {
    let mut input = PlannerInput::new("rs-3-2; want b0>n20; by rp");
    input.stripe.id = StripeId("a\nlane 9_5".to_owned());
    let text = input.plan().to_string();
    assert!(text.starts_with("pipelined rs-3-2 stripe a\\nlane 9_5: b0 to n20\nwindow"), "{text}");
}
