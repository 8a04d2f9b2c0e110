//! Mutates JSON into other valid JSON by replacing a value.

use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::below;

/// Changes one value of a document.
pub fn change(document: &mut Value, dice: &mut ChaCha8Rng) {
    let place = below(dice, count(document));
    if let Some(value) = nth(document, place, &mut 0) {
        tamper(value, dice);
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Returns the value with the number `wanted`, counted in depth-first order.
fn nth<'a>(value: &'a mut Value, wanted: usize, next: &mut usize) -> Option<&'a mut Value> {
    if *next == wanted {
        return Some(value);
    }
    *next += 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth(item, wanted, next)),
        Value::Object(fields) => fields.values_mut().find_map(|item| nth(item, wanted, next)),
        _ => None,
    }
}

fn tamper(value: &mut Value, dice: &mut ChaCha8Rng) {
    let edges = [0, 1, 2, 255, 256, 4096, 65_535, 65_536, u64::from(u32::MAX), 1 << 32, 1 << 63, u64::MAX];
    let edge = edges[below(dice, edges.len())];
    *value = match value.take() {
        Value::Number(number) => match (number.as_u64(), below(dice, 3)) {
            (Some(number), 0) => number.wrapping_add(1).into(),
            (Some(number), 1) => number.wrapping_sub(1).into(),
            _ => edge.into(),
        },
        Value::String(text) => match below(dice, 3) {
            0 => json!(""),
            1 => json!(text.repeat(1 + below(dice, 40))),
            _ => json!(text.chars().rev().collect::<String>()),
        },
        Value::Array(mut items) => {
            match below(dice, 4) {
                0 => items.clear(),
                1 => drop(items.pop()),
                2 => items.extend(items.clone()),
                _ => items.reverse(),
            }
            items.into()
        }
        Value::Object(mut fields) => {
            if let Some(name) = fields.keys().nth(below(dice, fields.len().max(1))).cloned() {
                fields.remove(&name);
            }
            fields.into()
        }
        Value::Null => edge.into(),
        Value::Bool(_) => Value::Null,
    };
}
