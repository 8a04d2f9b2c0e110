//! Reads per rebuilt block when no block is in memory: by the device, and by the helpers of all survivors.

use crate::finding::Finding;
use crate::report::Row;

/// The share by which the counters may exceed a target. Checksum lists add 0.1%, and the bytes that come over
/// links are known within 1%.
const COUNTING_ERROR: f64 = 0.01;

/// Returns the findings on a repair to a node. To notice a wrong source, the parity check needs one survivor
/// more than the k that the repair reads. So the device reads at least k + 1 blocks, and helpers read k
/// blocks for the slices and k + 1 for the check if no page is used twice.
pub(super) fn findings(row: &Row) -> [Finding; 3] {
    let needed = row.case.data_blocks as u64;
    let new_node = new_node(row).unwrap_or_default();
    let of_new_node = row.moved.disk.get(&new_node).copied().unwrap_or(0);
    let device = row.moved.device.unwrap_or_default().bytes;
    [
        judged(row, "device reads", device, needed + 1),
        judged(row, "reads by all survivors' helpers", row.disk_bytes() - of_new_node, 2 * needed + 1),
        Finding::told(row, about(row, "reads by the new block's helper"), blocks(row, of_new_node)),
    ]
}

fn judged(row: &Row, what: &str, bytes: u64, most: u64) -> Finding {
    let holds = in_blocks(row, bytes) <= most as f64 * (1.0 + COUNTING_ERROR);
    Finding::of(row, about(row, what), format!("≤ {most} blocks"), blocks(row, bytes), holds)
}

fn about(row: &Row, what: &str) -> String {
    let block = cluster::ByteSize::from_bytes(row.case.block_bytes);
    format!("{what} per rebuilt block, cold, {} {}, {block}", row.case.scheme, row.case.code)
}

fn in_blocks(row: &Row, bytes: u64) -> f64 {
    bytes as f64 / (row.case.block_bytes * row.case.lost.len() as u64) as f64
}

fn blocks(row: &Row, bytes: u64) -> String {
    format!("{:.2} blocks", in_blocks(row, bytes))
}

/// Returns the helper that got the rebuilt block: it received a block more than it sent.
fn new_node(row: &Row) -> Option<String> {
    let surplus = |helper: &&String| {
        let link = row.moved.traffic.get(*helper).copied().unwrap_or_default();
        i128::from(link.received_bytes) - i128::from(link.sent_bytes)
    };
    row.moved.disk.keys().max_by_key(surplus).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict;
    use crate::medium::DeviceReads;
    use crate::meter::LinkBytes;
    use crate::report::{Case, Moved};

    const BLOCK: u64 = 64 << 20;

    /// A repair of RS(4,2): h1 and h2 send, h3 is only checked, h4 gets the block.
    fn row(device_blocks: f64, checked: u64) -> Row {
        let case = Case {
            scheme: "auto".to_owned(),
            code: "rs-4-2".to_owned(),
            data_blocks: 2,
            block_bytes: BLOCK,
            lost: vec![0],
            ..Case::default()
        };
        let link = |sent_bytes, received_bytes| LinkBytes { sent_bytes, received_bytes };
        let links = [link(BLOCK, 0), link(BLOCK, BLOCK), link(0, 0), link(0, BLOCK)];
        let read = [2 * BLOCK, 2 * BLOCK, checked * BLOCK, BLOCK];
        let named = |index: usize| format!("h{}", index + 1);
        let moved = Moved {
            traffic: links.into_iter().enumerate().map(|(index, link)| (named(index), link)).collect(),
            disk: read.into_iter().enumerate().map(|(index, bytes)| (named(index), bytes)).collect(),
            device: Some(DeviceReads { reads: 9, bytes: (device_blocks * BLOCK as f64) as u64 }),
        };
        Row { case, moved, ..Row::default() }
    }

    #[test]
    fn reads_are_counted_in_blocks_and_judged() {
        let verdicts = |device, checked| findings(&row(device, checked)).map(|finding| finding.verdict);
        assert_eq!(verdicts(3.02, 1), [Verdict::Holds, Verdict::Holds, Verdict::Told]);
        assert_eq!(verdicts(3.1, 2), [Verdict::Fails, Verdict::Fails, Verdict::Told]);
        let [device, survivors, new_node] = findings(&row(3.02, 1));
        assert_eq!((&device.target[..], &device.measured[..]), ("≤ 3 blocks", "3.02 blocks"));
        assert_eq!((&survivors.target[..], &survivors.measured[..]), ("≤ 5 blocks", "5.00 blocks"));
        assert_eq!(new_node.measured, "1.00 blocks");
        assert_eq!(device.what, "device reads per rebuilt block, cold, auto rs-4-2, 64MiB");
    }
}
