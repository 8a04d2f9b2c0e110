use proptest::prelude::*;

use super::*;
use crate::address::ListedAddress;
use crate::listing::Disk;

/// Returns a listing of servers `a`, `b`, … in one rack, with shards written as
/// `server/disk:volume@encoding.shard`.
fn listing(servers: &str, shards: &str) -> Listing {
    let mut listing = Listing::default();
    for name in servers.split_whitespace() {
        let address = ListedAddress::of(&format!("{name}:8080"), 0);
        let disks = (0..2).map(|disk| (disk, Disk { kind: String::new() })).collect();
        let (data_center, rack) = ("d".to_owned(), "r".to_owned());
        let server =
            Server { address, data_center, rack, disks, free_volumes: 5, plain_volumes: BTreeSet::new() };
        listing.servers.insert(ServerId(name.to_owned()), server);
    }
    for shard in shards.split_whitespace() {
        let (place, what) = shard.split_once(':').expect("a place");
        let (server, disk) = place.split_once('/').expect("a disk");
        let (volume, rest) = what.split_once('@').expect("a volume");
        let (encoding, shard) = rest.split_once('.').expect("a shard");
        let number = |text: &str| text.parse::<u32>().expect("a number");
        listing.volumes.entry(number(volume)).or_default().push(Holding {
            server: ServerId(server.to_owned()),
            disk: number(disk),
            collection: "c".to_owned(),
            encoding: Encoding(number(encoding).into()),
            shards: [(number(shard) as u8, 100)].into(),
        });
    }
    listing
}

fn told(volumes: &mut Volumes, volume: u32, encodings: &[i64]) {
    for &encoding in encodings {
        volumes.tell_ratio(volume, Encoding(encoding), Ratio::new(2, 1).expect("possible"));
    }
}

fn of(shards: &str, encodings: &[i64]) -> Standing {
    let mut volumes = Volumes::default();
    volumes.apply(listing("a b c", shards));
    told(&mut volumes, 5, encodings);
    volumes.get(5).expect("it is listed").standing()
}

fn known(missing: &[u8], surplus: &[u8], foreign: &[i64], spare: i16) -> Standing {
    Standing::Known {
        encoding: Encoding(1),
        ratio: Ratio::new(2, 1).expect("possible"),
        missing: missing.to_vec(),
        surplus: surplus.to_vec(),
        foreign: foreign.iter().copied().map(Encoding).collect(),
        spare,
    }
}

#[test]
fn an_ordinary_volume_with_too_few_shards_is_recognized() {
    let mut volumes = Volumes::default();
    let mut is_both = |shards: &str, plain: &[u32]| {
        let mut listing = listing("a b c", shards);
        listing.servers.first_entry().expect("a").get_mut().plain_volumes = plain.iter().copied().collect();
        volumes.apply(listing);
        told(&mut volumes, 5, &[1]);
        volumes.is_both(5)
    };
    assert!(!is_both("c/0:5@1.2", &[]), "too few shards, and no ordinary volume");
    assert!(!is_both("c/0:5@1.2", &[6]));
    assert!(is_both("c/0:5@1.2", &[5]));
    assert!(!is_both("a/0:5@1.0 c/0:5@1.2", &[5]), "readable shards: the volume is being encoded or decoded");
}

/// Returns a listing of these servers, each with these ordinary volumes.
fn plain(servers: &str, volumes: &[u32]) -> Listing {
    let mut listing = listing(servers, "");
    let set = |server: &mut Server| server.plain_volumes = volumes.iter().copied().collect();
    listing.servers.values_mut().for_each(set);
    listing
}

/// A master that lists one volume leaves out all other ordinary volumes.
#[test]
fn a_partial_listing_says_nothing_about_other_ordinary_volumes() {
    let mut volumes = Volumes::default();
    let found = |volumes: &Volumes, server: &str| {
        let id = ServerId(server.to_owned());
        let plain = volumes.servers()[&id].plain_volumes.iter().copied().collect::<Vec<_>>();
        (plain, volumes.partly_listed().contains(&id))
    };
    volumes.apply(plain("a", &[5, 7]));
    volumes.apply_part(&[5].into(), plain("a b", &[]));
    assert_eq!((found(&volumes, "a"), found(&volumes, "b")), ((vec![7], false), (vec![], true)));
    volumes.apply_part(&[6].into(), plain("a b", &[6, 8]));
    assert_eq!((found(&volumes, "a"), found(&volumes, "b")), ((vec![6, 7], false), (vec![6], true)));
    // A listing of the whole cluster that was requested earlier: volumes 5 and 6 were listed later.
    let mut late = plain("a", &[5, 7, 9]);
    volumes.bring_up_to_date(&mut late, &[5, 6].into());
    volumes.apply(late);
    assert_eq!((found(&volumes, "a"), found(&volumes, "b")), ((vec![6, 7, 9], false), (vec![6], true)));
    volumes.apply(plain("a b", &[8]));
    assert_eq!((found(&volumes, "a"), found(&volumes, "b")), ((vec![8], false), (vec![8], false)));
}

#[test]
fn a_shard_of_another_length_is_a_change() {
    let mut volumes = Volumes::default();
    volumes.apply(listing("a", "a/0:5@1.0"));
    let mut longer = listing("a", "a/0:5@1.0");
    longer.volumes.get_mut(&5).expect("listed")[0].shards = [(0, 101)].into();
    let changes = volumes.apply(longer.clone());
    assert_eq!(changes.iter().map(Change::volume).collect::<Vec<_>>(), [Some(5), Some(5)]);
    assert_eq!(volumes.apply(longer), []);
}

#[test]
fn standing_follows_the_listing() {
    assert_eq!(of("a/0:5@1.0 b/0:5@1.1 c/0:5@1.2", &[1]), known(&[], &[], &[], 1));
    assert_eq!(of("a/0:5@1.0 a/1:5@1.0 c/0:5@1.2", &[1]), known(&[1], &[0], &[], 0));
    assert_eq!(of("c/0:5@1.2", &[1]), known(&[0, 1], &[], &[], -1));
    assert_eq!(of("c/0:5@1.2", &[]), Standing::RatioUnknown(Encoding(1)));
}

#[test]
fn files_on_a_disk_without_shards_may_be_left_over() {
    for (shards, has_idle_disk) in [
        ("a/0:5@1.0 b/0:5@1.1", true),
        ("a/0:5@1.0 a/1:5@1.2 b/0:5@1.1", false), // Both disks have current shards.
        ("a/0:5@1.0 a/1:5@2.2 b/0:5@1.1", false), // The other disk has shards of the other encoding.
        ("c/0:5@1.0 b/0:5@1.1", false),
    ] {
        let mut volumes = Volumes::default();
        volumes.apply(listing("a b c", shards));
        told(&mut volumes, 5, &[1, 2]);
        assert_eq!(volumes.has_idle_disk(5, &ServerId("a".to_owned())), has_idle_disk, "{shards}");
    }
}

#[test]
fn a_shard_number_beyond_the_ratio_is_no_spare() {
    let mut volumes = Volumes::default();
    volumes.apply(listing("a b c", "a/0:5@1.0 b/0:5@1.1 c/0:5@1.9"));
    told(&mut volumes, 5, &[1]);
    assert_eq!(volumes.spare(5, |_, _| true), Some(0));
    assert_eq!(volumes.spare(5, |_, home| home.server.0 != "a"), Some(-1));
}

#[test]
fn encodings_are_not_counted_together() {
    // The two shards would suffice to read the volume if they had the same encoding.
    let mixed = Standing::Mixed(vec![Encoding(1), Encoding(2)]);
    assert_eq!(of("a/0:5@1.0 b/0:5@2.1", &[1, 2]), mixed);
    assert_eq!(of("a/0:5@1.0 b/0:5@1.1 c/0:5@2.0 a/1:5@2.1", &[1, 2]), mixed, "either may be the newer data");
    assert_eq!(
        of("a/0:5@1.0 b/0:5@1.1 c/0:5@2.2 c/0:5@2.1", &[1]),
        mixed,
        "nobody knows whether 2 can be read"
    );
    assert_eq!(of("a/0:5@1.0 b/0:5@1.1 c/0:5@2.2", &[1]), mixed, "2 may have a single data shard");
    assert_eq!(of("a/0:5@1.0 b/0:5@1.1 c/0:5@2.2", &[1, 2]), known(&[2], &[], &[2], 0));
    assert_eq!(of("a/0:5@1.0 b/0:5@1.1 c/0:5@0.2", &[1, 0]), known(&[2], &[], &[0], 0));
    assert_eq!(of("a/0:5@1.0 b/0:5@1.1 c/0:5@0.2", &[1]), known(&[2], &[], &[0], 0), "it has no .vif");
}

/// A server has returned with shards of an earlier encoding, and does not answer, so its `.vif` is not read.
#[test]
fn few_shards_of_an_earlier_encoding_do_not_make_a_volume_unknown() {
    let current = |shards: &str, told: &[i64]| match of(shards, told) {
        Standing::Known { encoding, .. } => Some(encoding.0),
        _ => None,
    };
    assert_eq!(current("a/0:5@2.0 b/0:5@2.1 c/0:5@1.2", &[2]), Some(2));
    assert_eq!(current("a/0:5@2.0 b/0:5@2.1 c/0:5@1.2 c/0:5@1.1", &[2]), None, "they may suffice");
    assert_eq!(current("a/0:5@2.0 c/0:5@1.2", &[2]), None, "neither is readable");
    // An earlier coordinator knew the encoding, and perhaps not the later one.
    let mut volumes = Volumes::default();
    let homes = [(2, Home { server: ServerId("c".to_owned()), disk: 0, bytes: 100 })].into();
    volumes.recall(5, Encoding(1), Kept { homes, ..Kept::default() });
    for shards in ["a/0:5@2.0 b/0:5@2.1", "a/0:5@2.0 b/0:5@2.1 c/0:5@1.2"] {
        volumes.apply(listing("a b c", shards));
        told(&mut volumes, 5, &[2]);
        assert!(volumes.known(5).is_none(), "{shards}");
    }
    told(&mut volumes, 5, &[1]);
    assert_eq!(volumes.known(5).map(|(encoding, ..)| encoding), Some(Encoding(2)));
}

/// A server that has mounted a shard without a `.vif` lists the shard under encoding 0, which is no real
/// encoding of the volume.
#[test]
fn unreadable_encoding_is_ignored_even_after_its_server_left() {
    let mut volumes = Volumes::default();
    volumes.apply(listing("a b c", "a/0:5@1.0 b/0:5@1.1 c/0:5@0.2"));
    told(&mut volumes, 5, &[1]);
    assert_eq!(volumes.get(5).expect("listed").standing(), known(&[2], &[], &[0], 0));
    volumes.apply(listing("a b", "a/0:5@1.0 b/0:5@1.1"));
    assert_eq!(volumes.get(5).expect("listed").standing(), known(&[2], &[], &[0], 0));
}

/// A restarted master may list outdated shards before the current ones.
#[test]
fn an_unlisted_encoding_may_be_the_current_one() {
    let mut volumes = Volumes::default();
    volumes.apply(listing("a b c", "a/0:5@1.0 b/0:5@1.1 c/0:5@1.2"));
    told(&mut volumes, 5, &[1]);
    volumes.apply(listing("a", "a/0:5@2.0 a/1:5@2.1"));
    told(&mut volumes, 5, &[2]);
    let mixed = Standing::Mixed(vec![Encoding(1), Encoding(2)]);
    assert_eq!(volumes.get(5).expect("listed").standing(), mixed);
}

#[test]
fn a_lost_shard_is_remembered_where_it_was() {
    let mut volumes = Volumes::default();
    volumes.apply(listing("a b c", "a/0:5@1.0 b/1:5@1.1 c/0:5@1.2"));
    told(&mut volumes, 5, &[1]);
    let changes = volumes.apply(listing("a c", "a/0:5@1.0"));
    let went = |shard, server: &str, disk, server_is_up| Change::ShardWent {
        volume: 5,
        encoding: Encoding(1),
        shard,
        home: Home { server: ServerId(server.to_owned()), disk, bytes: 100 },
        server_is_up,
    };
    assert_eq!(
        changes,
        [Change::ServerWent(ServerId("b".to_owned())), went(1, "b", 1, false), went(2, "c", 0, true)]
    );
    let volume = volumes.get(5).expect("known");
    assert_eq!(volume.standing(), known(&[1, 2], &[], &[], -1), "the ratio is kept");
    let former = &volume.generations[&Encoding(1)].former;
    assert_eq!((former[&1].server.0.as_str(), former[&1].disk, former[&2].server.0.as_str()), ("b", 1, "c"));
    // The shard is rebuilt elsewhere and its old server returns, so there are two copies.
    volumes.apply(listing("a b c", "a/0:5@1.0 c/0:5@1.1 b/1:5@1.1 c/0:5@1.2"));
    assert_eq!(volumes.get(5).expect("known").standing(), known(&[], &[1], &[], 1));
}

#[test]
fn recorded_homes_of_unlisted_shards_are_restored() {
    let home = |server: &str| Home { server: ServerId(server.to_owned()), disk: 1, bytes: 100 };
    let kept =
        Kept { collection: String::new(), homes: [(0, home("a")), (2, home("c"))].into(), ..Kept::default() };
    let mut volumes = Volumes::default();
    volumes.recall(5, Encoding(1), kept.clone());
    volumes.recall(6, Encoding(1), kept.clone());
    volumes.recall(5, Encoding(2), kept);
    volumes.apply(listing("a b c", "b/0:5@1.0 b/0:5@1.1"));
    told(&mut volumes, 5, &[1]);
    let volume = volumes.get(5).expect("listed");
    let mixed = Standing::Mixed(vec![Encoding(1), Encoding(2)]);
    assert_eq!(volume.standing(), mixed, "encoding 2 may be the current one");
    assert_eq!(volume.generations[&Encoding(1)].former, [(2, home("c"))].into(), "where 0 is, is listed");
    assert!(volumes.get(6).is_none(), "what is not listed may have been deleted");
    volumes.drop_deleted(|_, encoding, _| encoding == Encoding(2));
    assert_eq!(volumes.get(5).expect("listed").standing(), known(&[2], &[], &[], 0));
}

/// After a restart, a master lists servers a moment before their shards.
#[test]
fn a_recorded_volume_may_exist_until_its_servers_deny_it() {
    let home = |server: &str| Home { server: ServerId(server.to_owned()), disk: 1, bytes: 100 };
    let homes: BTreeMap<u8, Home> = [(0, home("a")), (1, home("b")), (2, home("c"))].into();
    let mut volumes = Volumes::default();
    volumes.recall(5, Encoding(1), Kept { homes, ratio: Ratio::new(2, 1), ..Kept::default() });
    let unseen = |volumes: &Volumes| volumes.out_of_sight().map(|(id, ..)| id).collect::<Vec<_>>();
    volumes.apply(listing("a b", ""));
    let unlisted: Vec<u8> = volumes.unlisted().map(|(_, _, shard, _)| shard).collect();
    assert_eq!((unseen(&volumes), unlisted), (vec![5], vec![0, 1, 2]));
    volumes.drop_deleted(|_, _, shard| shard == 0);
    assert_eq!(unseen(&volumes), [5], "b is connected and has not denied its shard");
    volumes.apply(listing("a", ""));
    volumes.drop_deleted(|_, _, _| true);
    assert_eq!(unseen(&volumes), [5], "the servers of most shards are away");
    assert!(volumes.may_exist(5) && volumes.get(5).is_none());
    volumes.apply(listing("a b", ""));
    volumes.drop_deleted(|_, _, shard| shard < 2);
    assert_eq!(unseen(&volumes), [0; 0]);
    assert!(!volumes.may_exist(5));
}

/// With as many parity shards as data shards, or more, a minority of the servers can serve a volume.
#[test]
fn an_encoding_that_silent_servers_can_serve_is_not_dropped() {
    let home = |server: &str| Home { server: ServerId(server.to_owned()), disk: 0, bytes: 100 };
    let homes: BTreeMap<u8, Home> = (0..5).zip(["a", "b", "c", "d", "e"].map(home)).collect();
    for (ratio, servers, may_exist) in [
        (Ratio::new(2, 3), "a b c", true),
        (Ratio::new(2, 3), "a b c d", false),
        (Ratio::new(4, 1), "a b", true), // They are not most of the servers.
        (Ratio::new(4, 1), "a b c", false),
        (None, "a b c d", true),
        (None, "a b c d e", false),
    ] {
        let mut volumes = Volumes::default();
        volumes.recall(5, Encoding(1), Kept { homes: homes.clone(), ratio, ..Kept::default() });
        volumes.apply(listing(servers, ""));
        volumes.drop_deleted(|_, _, _| true);
        assert_eq!(volumes.may_exist(5), may_exist, "{ratio:?}, {servers}");
    }
}

/// The servers of a listed volume's other encoding are down, and it needs fewer shards than the listed one.
#[test]
fn an_unlisted_encoding_counts_by_its_own_ratio() {
    let home = |server: &str| Home { server: ServerId(server.to_owned()), disk: 0, bytes: 100 };
    let mixed = Standing::Mixed(vec![Encoding(1), Encoding(2)]);
    for (ratio, standing) in
        [(None, mixed.clone()), (Ratio::new(1, 1), mixed), (Ratio::new(2, 1), known(&[], &[], &[2], 1))]
    {
        let mut volumes = Volumes::default();
        let homes = [(0, home("x"))].into();
        volumes.recall(5, Encoding(2), Kept { homes, ratio, ..Kept::default() });
        volumes.apply(listing("a b c", "a/0:5@1.0 b/0:5@1.1 c/0:5@1.2"));
        told(&mut volumes, 5, &[1]);
        assert_eq!(volumes.get(5).expect("listed").standing(), standing, "{ratio:?}");
    }
}

#[test]
fn the_original_server_of_a_rebuilt_shard_is_remembered() {
    let mut volumes = Volumes::default();
    // The result must not depend on the order in which servers are listed.
    let (both, after) =
        ("a/0:5@1.0 b/0:5@1.1 c/0:5@1.0 a/0:5@1.2", "c/0:5@1.0 b/0:5@1.1 a/0:5@1.0 a/0:5@1.2");
    for shards in ["a/0:5@1.0 b/0:5@1.1 a/0:5@1.2", "b/0:5@1.1", "b/0:5@1.1 c/0:5@1.0 a/0:5@1.2", both, after]
    {
        volumes.apply(listing("a b c", shards));
    }
    let origins = &volumes.get(5).expect("listed").generations[&Encoding(1)].origins;
    assert_eq!(*origins, [(0, ServerId("a".to_owned()))].into());
}

/// A server returns in the moment in which its shard was rebuilt elsewhere.
#[test]
fn the_original_server_is_known_if_one_listing_contains_both_copies() {
    let mut volumes = Volumes::default();
    for shards in
        ["a/0:5@1.0 b/0:5@1.1 c/0:5@1.2", "b/0:5@1.1 c/0:5@1.2", "c/0:5@1.0 b/0:5@1.1 c/0:5@1.2 a/0:5@1.0"]
    {
        volumes.apply(listing("a b c", shards));
    }
    let origins = &volumes.get(5).expect("listed").generations[&Encoding(1)].origins;
    assert_eq!(*origins, [(0, ServerId("a".to_owned()))].into());
}

/// A restarted master lists no shards until the servers have reported theirs.
#[test]
fn volumes_are_kept_until_servers_confirm_the_loss() {
    let all = listing("a b c", "a/0:5@1.0 b/0:5@1.1 c/0:5@1.2");
    let mut volumes = Volumes::default();
    volumes.apply(all.clone());
    told(&mut volumes, 5, &[1]);
    volumes.apply(Listing::default());
    assert_eq!(volumes.get(5).expect("kept").standing(), known(&[0, 1, 2], &[], &[], -2));
    volumes.apply(all.clone());
    assert_eq!(volumes.get(5).expect("kept").standing(), known(&[], &[], &[], 1));
    // The servers are connected, but their shards are not listed. The master may only be late, so the volume
    // is kept until all connected servers have confirmed the loss.
    volumes.apply(listing("a b", ""));
    volumes.drop_deleted(|_, _, shard| shard == 0);
    assert_eq!(volumes.get(5).expect("kept").standing(), known(&[0, 1, 2], &[], &[], -2));
    // All connected servers have confirmed the loss, so the volume was deleted or decoded. Servers that are
    // not connected need not confirm that.
    volumes.drop_deleted(|_, _, shard| shard < 2);
    assert!(volumes.get(5).is_none());
}

fn any_listing() -> impl Strategy<Value = Listing> {
    let shard = (prop::sample::select(vec!["a", "b", "c"]), 0..2u32, 5..7u32, 1..3u32, 0..3u32);
    let shard = shard.prop_map(|(server, disk, volume, encoding, shard)| {
        (server, format!("{server}/{disk}:{volume}@{encoding}.{shard} "))
    });
    (prop::collection::vec(shard, 0..12), prop::sample::subsequence(vec!["a", "b", "c"], 0..=3)).prop_map(
        |(shards, servers)| {
            let there = shards.into_iter().filter(|(server, _)| servers.contains(server));
            let texts: BTreeSet<String> = there.map(|(_, text)| text).collect();
            listing(&servers.join(" "), &texts.into_iter().collect::<String>())
        },
    )
}

/// Returns the last listing, in which these volumes and all servers are replaced by those of a partial one.
fn with(volumes: &Volumes, ids: &BTreeSet<u32>, part: &Listing) -> Listing {
    let mut whole = volumes.listed.clone();
    whole.volumes.retain(|volume, _| !ids.contains(volume));
    whole.volumes.extend(part.volumes.clone().into_iter().filter(|(volume, _)| ids.contains(volume)));
    whole.servers = part.servers.clone();
    let before = &volumes.listed;
    let is_known = |id: &ServerId| before.servers.contains_key(id) && !before.partial.contains(id);
    whole.partial = part.servers.keys().filter(|id| !is_known(id)).cloned().collect();
    whole
}

proptest! {
    /// A partial listing has the effect of a full one in which the other volumes have not changed.
    #[test]
    fn a_partial_listing_is_applied_like_a_full_one(
        listings in prop::collection::vec((any_listing(), prop::collection::btree_set(5..8u32, 0..3)), 1..8),
    ) {
        let (mut fast, mut slow) = (Volumes::default(), Volumes::default());
        for (listing, ids) in listings {
            let whole = with(&slow, &ids, &listing);
            prop_assert_eq!(fast.apply_part(&ids, listing), slow.apply(whole));
            prop_assert_eq!(&fast.volumes, &slow.volumes);
            prop_assert_eq!(&fast.listed, &slow.listed);
        }
    }

    /// Applying the changes one by one yields the state of each listing.
    #[test]
    fn the_changes_lead_from_each_listing_to_the_next(listings in prop::collection::vec(any_listing(), 1..8)) {
        let mut volumes = Volumes::default();
        let mut followed = BTreeSet::new();
        for listing in listings {
            for change in volumes.apply(listing.clone()) {
                match change {
                    Change::ShardCame { volume, encoding, shard, home } => {
                        prop_assert!(followed.insert((volume, encoding, shard, home)), "it was there already");
                    }
                    Change::ShardWent { volume, encoding, shard, home, server_is_up } => {
                        prop_assert_eq!(server_is_up, listing.servers.contains_key(&home.server));
                        prop_assert!(followed.remove(&(volume, encoding, shard, home)), "it was not there");
                    }
                    _ => {}
                }
            }
            let plain: BTreeSet<_> = shards(&listing).iter().map(|(key, &bytes)| placed(key, bytes)).collect();
            prop_assert_eq!(&followed, &plain);
            for (id, volume) in volumes.iter() {
                for (&encoding, generation) in &volume.generations {
                    for (&shard, homes) in &generation.homes {
                        prop_assert!(!homes.is_empty());
                        for home in homes {
                            prop_assert!(plain.contains(&(id, encoding, shard, home.clone())));
                        }
                    }
                    let both = generation.former.keys().any(|shard| generation.homes.contains_key(shard));
                    prop_assert!(!both, "a shard is there or was there");
                }
            }
            let pictured: usize = volumes.iter().flat_map(|(_, volume)| volume.generations.values())
                .flat_map(|generation| generation.homes.values()).map(Vec::len).sum();
            prop_assert_eq!(pictured, plain.len());
        }
    }
}
