use proptest::prelude::*;

use super::*;
use crate::listing::Disk;
use crate::volumes::Home;

fn servers(racks: &[usize]) -> BTreeMap<ServerId, Server> {
    let mut servers = BTreeMap::new();
    for (rack, &count) in racks.iter().enumerate() {
        for at in 0..count {
            let id = ServerId(format!("r{rack}s{at}"));
            let address = format!("{id}:8080").parse().expect("an address");
            let disks = (0..2).map(|disk| (disk, Disk { kind: String::new() })).collect();
            let (data_center, rack) = (format!("d{}", rack % 2), format!("r{}", rack / 2));
            servers.insert(id, Server { address, data_center, rack, disks, free_volumes: 5 });
        }
    }
    servers
}

fn home(server: &str, disk: u32) -> Home {
    Home { server: ServerId(server.to_owned()), disk, bytes: 1 }
}

fn ratio(data: u32, parity: u32) -> Ratio {
    Ratio::new(data, parity).expect("possible")
}

/// Parses a list such as `r0s0/1 -`: the server and disk of shards 0, 1, …, or `-` for a lost shard.
fn spread(homes: &str) -> Generation {
    let homes = homes.split_whitespace().enumerate().filter(|(_, home)| *home != "-");
    let homes = homes.map(|(shard, text)| {
        let (server, disk) = text.split_once('/').expect("a disk");
        (shard as u8, vec![home(server, disk.parse().expect("a number"))])
    });
    Generation { homes: homes.collect(), ..Generation::default() }
}

fn at(place: Result<Place, NoPlace>) -> String {
    let place = place.expect("a place");
    format!("{}/{}", place.server, place.disk.expect("a disk"))
}

#[test]
fn a_shard_goes_back_where_it_was() {
    let mut generation = spread("r0s0/0 r1s0/0 - r0s1/0");
    generation.former.insert(2, home("r1s1", 1));
    assert_eq!(at(place(&generation, ratio(2, 2), 2, &servers(&[2, 2]), |_| true)), "r1s1/1");
    // The shard goes elsewhere if the former server has no helper, or if it has another shard while some
    // server has none.
    assert_eq!(at(place(&generation, ratio(2, 2), 2, &servers(&[2, 2]), |id| id.0 != "r1s1")), "r1s0/1");
    generation.former.insert(2, home("r0s0", 1));
    assert_eq!(at(place(&generation, ratio(2, 2), 2, &servers(&[2, 2]), |_| true)), "r1s1/0");
}

#[test]
fn racks_count_before_servers_and_servers_before_disks() {
    // The rack with two shards already has its share, although one of its servers is empty.
    assert_eq!(
        at(place(&spread("r0s0/0 r0s1/0 r1s0/0 -"), ratio(2, 2), 3, &servers(&[3, 1]), |_| true)),
        "r1s0/1"
    );
    assert_eq!(
        at(place(&spread("r0s0/0 r0s1/0 r1s0/0 -"), ratio(2, 2), 3, &servers(&[3, 2]), |_| true)),
        "r1s1/0"
    );
}

#[test]
fn full_and_missing_servers_are_reported() {
    let mut full = servers(&[2]);
    full.values_mut().for_each(|server| server.free_volumes = 0);
    assert_eq!(place(&spread("r0s0/0 -"), ratio(1, 1), 1, &full, |_| true), Err(NoPlace::Full));
    assert_eq!(place(&spread("r0s0/0 -"), ratio(1, 1), 1, &full, |_| false), Err(NoPlace::NoServer));
}

proptest! {
    /// The chosen place never puts two shards on a server, or too many in a rack, if another place avoids
    /// that.
    #[test]
    fn no_better_place_exists(
        racks in prop::collection::vec(1..5usize, 1..5),
        data in 1..11u32, parity in 1..5u32,
        homes in prop::collection::vec(prop::option::weighted(0.8, (0..5usize, 0..5usize, 0..2u32)), 15),
        former in prop::option::of((0..5usize, 0..5usize)),
        lost in 0..15u8,
    ) {
        let (ratio, servers) = (ratio(data, parity), servers(&racks));
        let lost = lost % ratio.total();
        let name = |rack: usize, at: usize| { let rack = rack % racks.len(); format!("r{rack}s{}", at % racks[rack]) };
        let mut generation = Generation::default();
        for (shard, place) in homes.iter().enumerate().take(usize::from(ratio.total())) {
            if let Some((rack, at, disk)) = place && shard != usize::from(lost) {
                generation.homes.insert(shard as u8, vec![home(&name(*rack, *at), *disk)]);
            }
        }
        if let Some((rack, at)) = former {
            generation.former.insert(lost, home(&name(rack, at), 0));
        }
        let chosen = place(&generation, ratio, lost, &servers, |_| true).expect("all have room");
        let spread = Spread::of(&generation, lost, &servers);
        let total = usize::from(ratio.total());
        let (rack_share, share) = (total.div_ceil(racks.len()), total.div_ceil(servers.len()));
        let counts = |id: &ServerId| (spread.rack(&servers[id]), spread.server(id));
        let (in_rack, on_server) = counts(&chosen.server);
        if on_server > 0 && share == 1 {
            prop_assert!(servers.keys().all(|id| counts(id).1 > 0 || counts(id).0 >= rack_share), "a server is empty");
        }
        if in_rack >= rack_share {
            prop_assert!(servers.keys().all(|id| counts(id).0 >= in_rack), "a rack has fewer");
        }
        let kept = former.map(|(rack, at)| ServerId(name(rack, at)));
        if kept.as_ref() != Some(&chosen.server) {
            let better = servers.keys().find(|id| counts(id).0 < rack_share.max(in_rack) && counts(id).1 < on_server);
            prop_assert_eq!(better, None);
            let kept_counts = kept.map(|id| counts(&id));
            prop_assert!(kept_counts.is_none_or(|(rack, server)| rack >= rack_share || server >= share), "not given back");
        }
    }
}
