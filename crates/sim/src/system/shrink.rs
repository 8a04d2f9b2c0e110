//! Shrinks a failing script: removes faults first, then operations, then nodes.

use super::{Script, Violation, play};
use crate::Tracing;

/// Returns the shortest script found that still fails, with its violations.
pub fn shrink(violation: Violation) -> Violation {
    let mut shortest = violation;
    loop {
        let before = shortest.script.clone();
        for shorter in shorter_than(&before) {
            if let Err(violation) = play(&shorter, Tracing::Off) {
                shortest = violation;
                break;
            }
        }
        if shortest.script == before {
            return shortest;
        }
    }
}

/// Returns all scripts with one element less.
fn shorter_than(script: &Script) -> Vec<Script> {
    let mut shorter = Vec::new();
    for at in (0..script.faults.len()).rev() {
        let mut without = script.clone();
        without.faults.remove(at);
        shorter.push(without);
    }
    for at in (0..script.operations.len()).rev() {
        let mut without = script.clone();
        without.operations.remove(at);
        shorter.push(without);
    }
    if script.helpers > script.code.blocks() as u32 {
        shorter.push(Script { helpers: script.helpers - 1, ..script.clone() });
    }
    if script.clients > 1 {
        shorter.push(Script { clients: script.clients - 1, ..script.clone() });
    }
    shorter.retain(Script::is_possible);
    shorter
}
