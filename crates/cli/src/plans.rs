//! Implements `mend plan`.

use std::time::Duration;

use client::{Client, PlanRequestView, PlanView, StripeView};
use repair::{Cost, Scheme};

use crate::answer::Answer;
use crate::args::PlanArgs;
use crate::blocks::{Target, find};
use crate::failure::Failure;
use crate::format::{count, disk_rate, link_rate, printable, size, table, time};

/// Extracts the cost from a plan's summary.
pub fn cost(plan: &PlanView) -> Result<Cost, Failure> {
    let cost = plan.summary.get("cost").cloned().unwrap_or_default();
    serde_json::from_value(cost)
        .map_err(|error| Failure::new(format!("cannot parse the coordinator's plan: {error}")))
}

/// Implements `mend plan`.
pub async fn plan(client: &Client, args: &PlanArgs) -> Result<Answer, Failure> {
    let request = request(client, args).await?;
    if args.compare {
        return compare(client, request).await;
    }
    let plan = client.plan(&request).await?;
    let text = format!("{}\npredicted {}", plan.text.trim_end(), predicted(&plan));
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

/// Returns the index of the block that the user named `3`, `b3` or by its full name.
fn index_of(stripe: &StripeView, name: &str) -> Result<u16, Failure> {
    let number: Option<u16> = name.strip_prefix('b').unwrap_or(name).parse().ok();
    let is_it = |index: u16, block: &str| block == name || Some(index) == number;
    let block = stripe.blocks.iter().find(|block| is_it(block.index, &block.block));
    block.map(|block| block.index).ok_or_else(|| {
        let stripe = printable(&stripe.stripe);
        Failure::new(format!("stripe {stripe} has no block `{}`", printable(name)))
            .help(format!("see its blocks with `mend stat {stripe}`"))
    })
}

/// Implements `mend plan --compare`: plans the repair with every scheme for the same requestors, and shows
/// the plans' costs and which scheme `auto` chooses.
async fn compare(client: &Client, request: PlanRequestView) -> Result<Answer, Failure> {
    let auto =
        client.plan(&PlanRequestView { scheme: Some(Scheme::Auto.to_string()), ..request.clone() }).await?;
    // The coordinator may choose the requestor at random, so fix its choice for all schemes.
    let requestor = match &auto.requestors[..] {
        [one] => Some(one.clone()),
        _ => request.requestor.clone(),
    };
    let request = PlanRequestView { requestor, ..request };
    let (mut rows, mut facts) = (Vec::new(), Vec::new());
    for scheme in Scheme::ALL.into_iter().filter(|&scheme| scheme != Scheme::Auto) {
        let request = PlanRequestView { scheme: Some(scheme.to_string()), ..request.clone() };
        match client.plan(&request).await {
            Ok(plan) => {
                rows.push(row(&plan)?);
                facts.push(serde_json::json!({
                    "scheme": scheme, "predicted_ms": plan.predicted_ms, "cost": plan.summary.get("cost"),
                }));
            }
            Err(error) if error.is_unreachable() => return Err(error.into()),
            Err(error) => facts.push(serde_json::json!({ "scheme": scheme, "error": error.to_string() })),
        }
    }
    let mut text = head(&auto) + &comparison(rows);
    for fact in facts.iter().filter(|fact| fact.get("error").is_some()) {
        let (scheme, error) = (fact["scheme"].as_str(), fact["error"].as_str());
        text += &format!("{}: {}\n", scheme.unwrap_or_default(), printable(error.unwrap_or_default()));
    }
    let facts = serde_json::json!({
        "requestors": auto.requestors, "rates": auto.rates, "auto": auto.scheme, "schemes": facts,
    });
    Ok(Answer::new(text, &facts))
}

/// Formats the heading: facts that hold for all schemes.
fn head(auto: &PlanView) -> String {
    let rates = auto.rates;
    let span = |least: u64, most: u64, rate: fn(u64) -> String| match least == most {
        true => rate(least),
        false => format!("{} to {}", rate(least), rate(most)),
    };
    let assumed = match rates.assumed_links {
        0 => String::new(),
        links => format!(" ({} not configured, 1gbit assumed)", count(links, "link")),
    };
    format!(
        "to {}; auto chooses {}\nrates: links {}{assumed},\n       disks {}\n",
        auto.requestors.join(", "),
        auto.scheme,
        span(rates.slowest_link, rates.fastest_link, link_rate),
        span(rates.slowest_disk, rates.fastest_disk, disk_rate)
    )
}

/// Formats the table of schemes, which fits a terminal of 80 columns.
fn comparison(rows: Vec<[String; 7]>) -> String {
    let headings = ["scheme", ">predicted", ">received", ">busiest", ">network", ">disk reads", ">hops"];
    table(headings, rows)
}

fn predicted(plan: &PlanView) -> String {
    time(Duration::from_millis(plan.predicted_ms))
}

fn row(plan: &PlanView) -> Result<[String; 7], Failure> {
    let cost = cost(plan)?;
    Ok([
        plan.scheme.clone(),
        predicted(plan).replace(' ', ""),
        size(cost.requestors_receive()),
        size(cost.through_busiest()),
        size(cost.network_bytes),
        format!("{}x{}", cost.reads, size(cost.mean_read_bytes()).replace(' ', "")),
        cost.hops.to_string(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_fits_80_columns() {
        let text = |text: &str| text.to_owned();
        let widest =
            ["crr-s-direct", "59min59s", "999.99 MiB", "999.99 MiB", "999.99 MiB", "9999x999.9KiB", "99"];
        let table = comparison(vec![widest.map(text)]);
        assert!(table.lines().all(|line| line.len() <= 80), "{table}");
        assert_eq!(table.lines().count(), 2);
    }
}
