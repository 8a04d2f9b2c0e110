//! Writes the entries of mend.toml that describe a lab's network to the planner.

use std::fmt::Write;

use crate::network::LabNode;
use crate::topology::Topology;

/// Returns the name of rack `rack`, which is numbered from 0.
pub(crate) fn rack_name(rack: u16) -> String {
    format!("rack{}", rack + 1)
}

/// Returns entries for racks, and for links between helpers and from helpers to the client.
pub(crate) fn links(topology: &Topology) -> String {
    let mut text = String::new();
    let mut say = |line: std::fmt::Arguments<'_>| text.write_fmt(line).expect("a string");
    if let Some(racks) = topology.racks {
        for rack in 0..racks.count {
            let (name, rate) = (rack_name(rack), racks.rate);
            say(format_args!("\n[[rack]]\nname = \"{name}\"\nup = \"{rate}\"\ndown = \"{rate}\"\n"));
        }
    }
    if let Some(matrix) = topology.matrix.as_ref().filter(|_| topology.shared) {
        let places = || 0..matrix.places();
        for (from, to) in
            places().flat_map(|from| places().map(move |to| (from, to))).filter(|(from, to)| from != to)
        {
            let (rate, from, to) = (matrix.between(from, to), rack_name(from), rack_name(to));
            say(format_args!("\n[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate}\"\n"));
        }
        return text;
    }
    if topology.matrix.is_some() {
        let helpers = || (0..topology.nodes).map(|index| format!("\"{}\"", LabNode::Helper(index)));
        say(format_args!(
            "\n[[matrix]]\nnames = [{}]\nrates = [\n",
            helpers().collect::<Vec<_>>().join(", ")
        ));
        for from in 0..topology.nodes {
            let entry = |to: u16| match topology.pair_rate(from, Some(to)) {
                Some(rate) if to != from => format!("\"{rate}\""),
                _ => "\"-\"".to_owned(),
            };
            say(format_args!("  [{}],\n", (0..topology.nodes).map(entry).collect::<Vec<_>>().join(", ")));
        }
        say(format_args!("]\n"));
    }
    for from in 0..topology.nodes {
        let whole = topology.link_rate(from);
        if let Some(rate) = topology.pair_rate(from, None).filter(|&rate| Some(rate) != whole) {
            let from = LabNode::Helper(from);
            say(format_args!("\n[[link]]\nfrom = \"{from}\"\nto = \"client\"\nrate = \"{rate}\"\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Rate;

    #[test]
    fn shaped_links_are_written_to_the_configuration() {
        let rate: Rate = "1gbit".parse().unwrap();
        let flat = Topology::flat(2, rate);
        assert_eq!(links(&flat), "", "links of helpers stand with the helpers");
        let racks = Topology { racks: Some("2:400mbit".parse().unwrap()), ..flat.clone() };
        assert!(links(&racks).contains("name = \"rack2\"\nup = \"400mbit\"\ndown = \"400mbit\""));
        let edge = Topology { edge: Some("100mbit".parse().unwrap()), ..flat.clone() };
        assert!(links(&edge).contains("from = \"h2\"\nto = \"client\"\nrate = \"100mbit\""));
        let matrix = Topology { matrix: Some("asia".parse().unwrap()), ..Topology::flat(4, rate) };
        let text = links(&matrix);
        assert!(text.contains("names = [\"h1\", \"h2\", \"h3\", \"h4\"]"), "{text}");
        assert!(text.contains("[\"-\", \"62300kbit\", \"39500kbit\", \"37700kbit\"]"), "{text}");
        assert!(text.contains("from = \"h2\"\nto = \"client\"\nrate = \"63800kbit\""), "{text}");
        let text = links(&Topology { shared: true, ..matrix });
        assert!(text.contains("from = \"rack2\"\nto = \"rack1\"\nrate = \"63800kbit\""), "{text}");
        assert!(!text.contains("client") && !text.contains("matrix"), "{text}");
    }
}
