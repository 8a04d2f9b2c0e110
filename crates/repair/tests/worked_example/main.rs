//! Compares `docs/explanation/worked-example.md` with the program: the tests produce everything that the page
//! shows as output.

#![forbid(unsafe_code)]

use std::sync::Arc;

use codes::{BlockIndex, Code, CodeSpec, Recipe};
use repair::{
    BlockId, Chunking, NodeId, NodeProfile, PlanRequest, Policy, Scheme, Stripe, StripeBlock, StripeId,
    Topology, Wanted, plan,
};

const PAGE: &str = include_str!("../../../../docs/explanation/worked-example.md");
const LOST: BlockIndex = BlockIndex(0);
const REQUESTOR: NodeId = NodeId(5);

fn code() -> Arc<dyn Code> {
    "rs-4-2".parse::<CodeSpec>().unwrap().build().unwrap()
}

/// Block i is on node h(i + 1), and h1 is dead.
fn stripe() -> Stripe {
    let block = |index: u16| StripeBlock {
        id: BlockId(format!("17.{index}")),
        bytes: 64 << 20,
        holder: (BlockIndex(index) != LOST).then_some(NodeId(u32::from(index) + 1)),
        digest: None,
    };
    Stripe {
        id: StripeId("17".to_owned()),
        code: code(),
        chunking: Chunking::whole(&*code(), 64 << 20),
        blocks: (0..4).map(block).collect(),
        label: None,
    }
}

fn plan_text(scheme: Scheme) -> String {
    let mut topology = Topology::new();
    (2..=5).for_each(|node| topology.set(NodeId(node), NodeProfile::unknown(format!("h{node}"))));
    let stripe = stripe();
    let request = PlanRequest {
        wanted: vec![Wanted { block: LOST, requestor: REQUESTOR }],
        window: 0..stripe.sub_block_bytes(),
        sub_blocks: None,
        resume: None,
        policy: Policy { scheme, slice_bytes: Some(64 << 10), ..Policy::default() },
    };
    plan(&stripe, &request, &topology).unwrap().display_with(&topology).to_string()
}

/// Returns a text such as `b0 = 3·b1 + 2·b2`.
fn equation(recipe: &Recipe) -> String {
    let terms = recipe.row(0).iter().map(|&(source, coefficient)| {
        let block = recipe.sources()[source as usize].block;
        if coefficient == 1 { block.to_string() } else { format!("{coefficient}·{block}") }
    });
    format!("{} = {}", recipe.outputs()[0].block, terms.collect::<Vec<_>>().join(" + "))
}

fn recipe(lost: u16, available: &[u16]) -> Recipe {
    let available: Vec<_> = available.iter().map(|&index| BlockIndex(index)).collect();
    code().repair(&[BlockIndex(lost)], &available).unwrap()
}

/// Asserts that the page shows a text, indented as code.
#[track_caller]
fn assert_shown(text: &str) {
    let shown: String = text.lines().map(|line| format!("    {line}\n")).collect();
    assert!(PAGE.contains(&shown), "docs/explanation/worked-example.md does not show this:\n\n{shown}");
}

#[test]
fn the_recipes_are_those_of_the_page() {
    assert_shown(&equation(&recipe(2, &[0, 1])));
    assert_shown(&equation(&recipe(3, &[0, 1])));
    assert_shown(&equation(&recipe(0, &[1, 2, 3])));
}

#[test]
fn the_bytes_are_those_of_the_page() {
    let (b0, b1) = ([0x4d_u8], [0x65_u8]);
    let b2 = recipe(2, &[0, 1]).apply(&[&b0, &b1]).remove(0);
    let repair = recipe(0, &[1, 2, 3]);
    assert_shown(&format!("b0 = {:02x}   b1 = {:02x}   b2 = {:02x}", b0[0], b1[0], b2[0]));
    let row = repair.row(0);
    let part = |at: usize, byte: u8| gf::mul(row[at].1, byte);
    assert_shown(&format!(
        "h2 sends {:02x}; h3 adds {:02x} and sends {:02x}",
        part(0, b1[0]),
        part(1, b2[0]),
        part(0, b1[0]) ^ part(1, b2[0]),
    ));
    assert_eq!(repair.apply(&[&b1, &b2]), [b0]);
}

#[test]
fn the_plans_are_those_of_the_page() {
    assert_shown(&plan_text(Scheme::Pipelined));
    assert_shown(&plan_text(Scheme::Conventional));
}
