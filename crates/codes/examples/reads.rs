//! Prints the cost of single-block repairs: for each named code n, k, overhead, α, blocks read (mean over all
//! n), and the number of losses that are always repairable.
//!
//! `cargo run -p codes --example reads rs-14-10 lrc-12-2-2`

use codes::{BlockIndex, Code, CodeSpec};

/// The maximum number of loss patterns to try for codes that are not MDS.
const MOST_SETS: usize = 300_000;

fn mean_reads(code: &dyn Code) -> f64 {
    let n = code.blocks() as u16;
    let read = |lost: u16| {
        let others: Vec<BlockIndex> = (0..n).filter(|&block| block != lost).map(BlockIndex).collect();
        code.repair(&[BlockIndex(lost)], &others).map_or(f64::NAN, |recipe| recipe.sources().len() as f64)
    };
    (0..n).map(read).sum::<f64>() / f64::from(n) / code.sub_blocks() as f64
}

/// Returns how many losses the code always repairs. A plus sign means that the code may repair more losses:
/// there were too many sets of them to try all.
fn tolerated(code: &dyn Code) -> String {
    let (n, m) = (code.blocks(), code.blocks() - code.data_blocks());
    if code.spec().is_mds() {
        return m.to_string();
    }
    let mut tried = 0;
    for losses in 1..=m {
        let mut set: Vec<usize> = (0..losses).collect();
        loop {
            tried += 1;
            if tried > MOST_SETS {
                return format!("{}+", losses - 1);
            }
            let index = |&block: &usize| BlockIndex(block as u16);
            let lost: Vec<BlockIndex> = set.iter().map(index).collect();
            let others: Vec<BlockIndex> =
                (0..n).filter(|block| !set.contains(block)).map(|block| BlockIndex(block as u16)).collect();
            if code.repair(&lost, &others).is_err() {
                return (losses - 1).to_string();
            }
            let Some(at) = (0..losses).rev().find(|&at| set[at] < n - losses + at) else { break };
            set[at] += 1;
            (at + 1..losses).for_each(|next| set[next] = set[next - 1] + 1);
        }
    }
    m.to_string()
}

fn main() {
    println!("| code | n, k | overhead | α | blocks read | losses |\n|---|---|---|---|---|---|");
    for name in std::env::args().skip(1) {
        let code = match name.parse::<CodeSpec>().and_then(|spec| spec.build()) {
            Ok(code) => code,
            Err(error) => {
                eprintln!("{name}: {error}");
                continue;
            }
        };
        let (n, k) = (code.blocks(), code.data_blocks());
        let overhead = n as f64 / k as f64;
        let (alpha, reads, losses) = (code.sub_blocks(), mean_reads(&*code), tolerated(&*code));
        println!("| `{name}` | {n}, {k} | {overhead:.3} | {alpha} | {reads:.2} | {losses} |");
    }
}
