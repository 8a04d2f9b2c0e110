//! `mend plan`.

use client::{Client, PlanRequestView, PlanView, StripeView};
use repair::{Cost, Scheme};

use crate::answer::Answer;
use crate::args::PlanArgs;
use crate::blocks::{Target, find};
use crate::failure::Failure;
use crate::format::{size, table};

/// The cost in a plan's summary.
pub fn cost(plan: &PlanView) -> Result<Cost, Failure> {
    let cost = plan.summary.get("cost").cloned().unwrap_or_default();
    serde_json::from_value(cost)
        .map_err(|error| Failure::new(format!("the coordinator's plan cannot be read: {error}")))
}

/// `mend plan`
pub async fn plan(client: &Client, args: &PlanArgs) -> Result<Answer, Failure> {
    let request = request(client, args).await?;
    if args.compare {
        return compare(client, request).await;
    }
    let plan = client.plan(&request).await?;
    let text = format!("{}\npredicted {} ms", plan.text.trim_end(), plan.predicted_ms);
    Ok(Answer::new(text, &plan))
}

async fn request(client: &Client, args: &PlanArgs) -> Result<PlanRequestView, Failure> {
    let (blocks, stripe) = match find(client, &args.target).await? {
        Target::Block(index, stripe) => (vec![index], stripe),
        Target::Stripe(stripe) => (Vec::new(), stripe),
    };
    let lost = args.lost.iter().map(|name| index_of(&stripe, name)).collect::<Result<_, _>>()?;
    Ok(PlanRequestView {
        stripe: stripe.stripe,
        blocks,
        scheme: args.how.scheme.map(|scheme| scheme.to_string()),
        slice_bytes: args.how.slice_size,
        lost,
        requestor: args.requestor.clone(),
    })
}

/// The index of a block given as `3`, `b3` or by its name.
fn index_of(stripe: &StripeView, name: &str) -> Result<u16, Failure> {
    let number: Option<u16> = name.strip_prefix('b').unwrap_or(name).parse().ok();
    let is_it = |index: u16, block: &str| block == name || Some(index) == number;
    let block = stripe.blocks.iter().find(|block| is_it(block.index, &block.block));
    block.map(|block| block.index).ok_or_else(|| {
        Failure::new(format!("stripe {} has no block `{name}`", stripe.stripe))
            .help(format!("see its blocks with `mend stat {}`", stripe.stripe))
    })
}

async fn compare(client: &Client, request: PlanRequestView) -> Result<Answer, Failure> {
    let (mut rows, mut facts) = (Vec::new(), Vec::new());
    for scheme in Scheme::ALL.into_iter().filter(|&scheme| scheme != Scheme::Auto) {
        let request = PlanRequestView { scheme: Some(scheme.to_string()), ..request.clone() };
        match client.plan(&request).await {
            Ok(plan) => {
                rows.push(row(scheme, &plan)?);
                facts.push(serde_json::json!({
                    "scheme": scheme, "predicted_ms": plan.predicted_ms, "cost": plan.summary.get("cost"),
                }));
            }
            Err(error) if error.is_unreachable() => return Err(error.into()),
            Err(error) => facts.push(serde_json::json!({ "scheme": scheme, "error": error.to_string() })),
        }
    }
    if rows.is_empty() {
        // The reason is the same for all; the plain request tells it best.
        client.plan(&request).await?;
    }
    let headings = [
        "scheme",
        ">timeslots",
        ">predicted",
        ">into requestor",
        ">busiest link",
        ">network",
        ">disks",
        ">disk reads",
        ">hops",
    ];
    let mut text = table(headings, rows);
    for fact in facts.iter().filter(|fact| fact.get("error").is_some()) {
        let (scheme, error) = (fact["scheme"].as_str(), fact["error"].as_str());
        text += &format!("{}: {}\n", scheme.unwrap_or_default(), error.unwrap_or_default());
    }
    Ok(Answer::new(text, &facts))
}

fn row(scheme: Scheme, plan: &PlanView) -> Result<[String; 9], Failure> {
    let cost = cost(plan)?;
    Ok([
        scheme.to_string(),
        format!("{:.3}", cost.timeslots),
        format!("{} ms", plan.predicted_ms),
        size(cost.requestors_receive()),
        size(cost.through_busiest()),
        size(cost.network_bytes),
        size(cost.read_bytes),
        format!("{} x {}", cost.reads, size(cost.mean_read_bytes())),
        cost.hops.to_string(),
    ])
}
