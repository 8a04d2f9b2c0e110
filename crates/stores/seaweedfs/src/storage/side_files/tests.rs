use super::*;
use crate::blocks::made;
use crate::storage::encoding_files::Known;

fn ratio() -> Ratio {
    Ratio::new(2, 1).expect("possible")
}

fn expected() -> Expected {
    Expected { encoding: Encoding(7), ratio: ratio(), shard_bytes: 100 }
}

fn vif(encoding: i64) -> Vec<u8> {
    format!(
        r#"{{"version": 3, "ecShardConfig": {{"dataShards": 2, "parityShards": 1, "encodeTsNs": "{encoding}"}}}}"#
    )
    .into_bytes()
}

fn verdict(file: SmallFile, copies: &[(&str, Option<Vec<u8>>)]) -> Verdict {
    let mut found = Copies::default();
    for (server, bytes) in copies {
        found.add(file, ServerId((*server).to_owned()), bytes.clone());
    }
    found.verdict(file, expected())
}

fn names(servers: &[ServerId]) -> Vec<&str> {
    servers.iter().map(|server| server.0.as_str()).collect()
}

fn problem<'a>(verdict: &'a Verdict, server: &str) -> Option<&'a Problem> {
    verdict.bad.get(&ServerId(server.to_owned()))
}

#[test]
fn the_majority_is_right() {
    let spaced = [vif(7), b"\n".to_vec()].concat();
    let found = verdict(
        SmallFile::Vif,
        &[("a", Some(vif(7))), ("b", Some(b"garbage".to_vec())), ("c", Some(spaced)), ("d", None)],
    );
    assert_eq!(names(&found.good), ["a", "c"]);
    assert!(matches!(problem(&found, "b"), Some(Problem::Damaged(_))));
    assert_eq!(problem(&found, "d"), Some(&Problem::Missing));
}

#[test]
fn without_a_majority_no_server_is_blamed() {
    let found = verdict(SmallFile::Vif, &[("a", Some(vif(7))), ("b", Some(vif(8)))]);
    assert_eq!(found, Verdict::default());
    let found = verdict(SmallFile::Vif, &[("a", Some(vif(7))), ("b", Some(vif(8))), ("c", Some(vif(8)))]);
    assert_eq!(found, Verdict::default(), "most have it of another encoding than the one that counts");
    assert_eq!(verdict(SmallFile::Vif, &[("a", None), ("b", None)]), Verdict::default());
}

#[test]
fn servers_that_do_not_answer_are_no_part_of_the_majority() {
    let server = |name: &str| ServerId(name.to_owned());
    let mut found = Copies::default();
    found.add(SmallFile::Vif, server("a"), Some(vif(7)));
    found.add(SmallFile::Vif, server("b"), Some(vif(7)));
    found.add(SmallFile::Vif, server("c"), None);
    found.note_asked(4);
    assert_eq!(names(&found.verdict(SmallFile::Vif, expected()).good), ["a", "b"]);
    found.note_asked(5);
    assert_eq!(found.verdict(SmallFile::Vif, expected()), Verdict::default(), "two of four may be outdated");
}

#[test]
fn indexes_may_differ_in_deletions_only() {
    let entry = |key: u8, size: [u8; 4]| [[0, 0, 0, 0, 0, 0, 0, key, 0, 0, 0, 9].as_slice(), &size].concat();
    let size = [0, 0, 0, 5];
    let index = [entry(1, size), entry(2, size)].concat();
    let deleted = [entry(1, size), entry(2, TOMBSTONE)].concat();
    let (rotten, short) = ([entry(1, [0, 0, 0, 4]), entry(2, size)].concat(), entry(1, size));
    let found = verdict(
        SmallFile::Ecx,
        &[
            ("a", Some(index.clone())),
            ("b", Some(deleted)),
            ("c", Some(rotten)),
            ("d", Some(short)),
            ("e", Some(index)),
        ],
    );
    assert_eq!(names(&found.good), ["a", "b", "e"]);
    assert_eq!(found.bad.values().collect::<Vec<_>>(), [&Problem::Differs, &Problem::Differs]);
}

#[test]
fn a_description_of_another_encoding_is_named_as_such() {
    let other = [vif(7), b" ".to_vec()].concat();
    let same_encoding = String::from_utf8(vif(7)).expect("text").replace("\"version\": 3", "\"version\": 2");
    let found = verdict(
        SmallFile::Vif,
        &[
            ("a", Some(vif(7))),
            ("b", Some(other)),
            ("c", Some(vif(7))),
            ("d", Some(vif(6))),
            ("e", Some(same_encoding.into_bytes())),
        ],
    );
    assert_eq!(names(&found.good), ["a", "b", "c"], "spaces mean nothing");
    assert_eq!(problem(&found, "d"), Some(&Problem::OtherEncoding));
    assert_eq!(problem(&found, "e"), Some(&Problem::Differs));
}

/// The `weed` of most packages has offsets of 5 bytes, so its entries have 17 bytes.
#[test]
fn deletions_are_ignored_in_indexes_of_large_volumes_too() {
    let entry =
        |key: u8, size: [u8; 4]| [[0, 0, 0, 0, 0, 0, 0, key, 0, 0, 0, 9, 0].as_slice(), &size].concat();
    let size = [0, 0, 0, 5];
    let index = [entry(1, size), entry(2, size), entry(3, size)].concat();
    let deleted = [entry(1, size), entry(2, TOMBSTONE), entry(3, size)].concat();
    let rotten = [entry(1, size), entry(2, size), entry(3, [0, 0, 1, 5])].concat();
    let found = verdict(
        SmallFile::Ecx,
        &[("a", Some(index.clone())), ("b", Some(deleted)), ("c", Some(rotten)), ("d", Some(index))],
    );
    assert_eq!(names(&found.good), ["a", "b", "d"]);
    assert_eq!(problem(&found, "c"), Some(&Problem::Differs));
}

#[test]
fn the_size_of_an_indexs_entries_follows_from_its_keys() {
    let index = |bytes: usize| -> Vec<u8> {
        let entry = |key: u64| {
            let mut entry = key.to_be_bytes().to_vec();
            entry.resize(bytes - SIZE_BYTES, 7);
            entry.extend(if key == 300 { TOMBSTONE } else { [0, 0, 1, 0] });
            entry
        };
        // A length that is a multiple of both sizes.
        (1..=WINDOW_UNIT as u64).map(|at| at * 100).flat_map(entry).collect()
    };
    for bytes in ENTRY_BYTES {
        let index = index(bytes);
        assert_eq!(entry_bytes(&index), Some(bytes));
        assert_eq!(entry_bytes(&index[..bytes]), Some(bytes), "of a single entry, the length says it");
        assert_eq!(entry_bytes(&index[1..]), None, "it is cut off");
        let erased = [&index[..2 * bytes], &vec![0xff; 2 * bytes]].concat();
        assert_eq!(entry_bytes(&erased), None, "not even the entries that look like deleted ones count");
        let found: Vec<(u64, bool)> = entries(&index, bytes).take(3).collect();
        assert_eq!(found, [(100, false), (200, false), (300, true)]);
    }
}

/// Compares the indexes of several servers, each given as a list of windows.
fn verdict_on_windows(copies: &[(&str, &[&[u8]])]) -> Verdict {
    let server = |name: &str| ServerId(name.to_owned());
    let mut found = Copies::default();
    for (name, windows) in copies {
        found.add(SmallFile::Ecx, server(name), windows.first().map(|window| window.to_vec()));
    }
    let rounds = copies.iter().map(|(_, windows)| windows.len()).max().unwrap_or(0);
    for at in 1..rounds {
        let next =
            copies.iter().filter_map(|(name, windows)| Some((server(name), windows.get(at)?.to_vec())));
        found.compare_next(next.collect());
    }
    found.verdict(SmallFile::Ecx, expected())
}

#[test]
fn indexes_are_compared_to_their_ends() {
    let entry = |key: u8, size: [u8; 4]| [[0, 0, 0, 0, 0, 0, 0, key, 0, 0, 0, 9].as_slice(), &size].concat();
    let size = [0, 0, 0, 5];
    let (first, second, third) = (entry(1, size), entry(2, size), entry(3, size));
    let (deleted, rotten) = (entry(2, TOMBSTONE), entry(3, [0, 0, 1, 5]));
    let found = verdict_on_windows(&[
        ("a", &[&first, &second, &third, b""]),
        ("deleted", &[&first, &deleted, &third, b""]),
        ("early", &[&rotten, &second, &third, b""]),
        ("late", &[&first, &second, &rotten, b""]),
        ("long", &[&first, &second, &third, &third]),
        ("none", &[b"", b"", b"", b""]),
        ("short", &[&first, &second, b"", b""]),
        ("silent", &[&first, &second]),
        ("x", &[&first, &second, &third, b""]),
        ("y", &[&first, &second, &third, b""]),
        ("z", &[&first, &second, &third, b""]),
    ]);
    assert_eq!(names(&found.good), ["a", "deleted", "x", "y", "z"]);
    for server in ["early", "late", "long", "short"] {
        assert_eq!(problem(&found, server), Some(&Problem::Differs), "{server}");
    }
    assert_eq!(problem(&found, "none"), Some(&Problem::Missing));
    assert_eq!(problem(&found, "silent"), None, "it is not blamed");
}

#[test]
fn checksums_on_one_server_only_are_not_required_elsewhere() {
    let sums = |damaged: bool| {
        let mut bytes = b"ECSU\0\x01\0\0\0\0\0\0\0\0".to_vec();
        bytes[0] ^= u8::from(damaged);
        bytes
    };
    let found = verdict(SmallFile::Ecsum, &[("a", Some(sums(true))), ("b", None), ("c", None)]);
    assert_eq!(found, Verdict::default(), "there is none to hold it against");
}

/// The copies of a file on several servers; `None` for a server without a copy.
type Bytes<'b> = &'b [Option<&'b [u8]>];

/// Returns the copies of a file, of servers that are named by their positions.
fn copies(file: SmallFile, bytes: Bytes<'_>) -> Copies {
    let mut found = Copies::default();
    for (at, bytes) in bytes.iter().enumerate() {
        found.add(file, ServerId(at.to_string()), bytes.map(<[u8]>::to_vec));
    }
    found
}

/// Returns an `.ecsum` of three shards of this length, which consist of this byte.
fn ecsum(fill: u8, bytes: usize) -> Vec<u8> {
    made::ecsum(ratio(), 1 << 20, &vec![vec![fill; bytes]; 3])
}

/// A file that an earlier encoding has left has the same ratio, and its shards may have had the same length.
#[test]
fn checksums_count_if_most_servers_agree_on_them() {
    let (new, old, short) = (ecsum(1, 100), ecsum(2, 100), ecsum(1, 99));
    let (new, old, short) = (Some(&*new), Some(&*old), Some(&*short));
    let digests = Ecsum::decode(&ecsum(1, 100)).expect("just made").digests();
    let (none, garbage): (_, Option<&[u8]>) = (Some(Vec::new()), Some(b"garbage"));
    let cases: [(Bytes<'_>, usize, Option<Vec<Digest>>); 8] = [
        (&[old, new, new], 3, Some(digests.clone())),
        (&[new, new, None], 3, Some(digests)),
        (&[old, new], 2, none.clone()),
        (&[old, None, None], 3, none.clone()),
        (&[old, garbage, garbage], 3, none.clone()),
        (&[short, short], 2, none.clone()),
        (&[None, None], 2, none),
        (&[new, new], 4, None),
    ];
    for (bytes, servers, found) in cases {
        let mut copies = copies(SmallFile::Ecsum, bytes);
        copies.note_asked(servers);
        assert_eq!(copies.checksums(Encoding(7), ratio(), Some(100)).digests(), found, "{copies:?}");
    }
}

#[test]
fn checksums_from_before_the_encoding_have_no_vote() {
    let encoding = Encoding(1_795_322_287_727_440_871);
    let expected = Expected { encoding, ..expected() };
    let (new, old) = (ecsum(1, 100), ecsum(2, 100));
    let [new_digests, old_digests] =
        [&new, &old].map(|bytes| Some(Ecsum::decode(bytes).expect("just made").digests()));
    let (new, old) = (Some(&*new), Some(&*old));
    let digests = |found: &Copies| found.checksums(encoding, ratio(), Some(100)).digests();
    let note = |found: &mut Copies, server: usize, modified_ns: i64| {
        found.note_modified(&ServerId(server.to_string()), modified_ns);
    };
    let mut found = copies(SmallFile::Ecsum, &[old, old, old, new, new]);
    assert_eq!(digests(&found), old_digests, "most servers have them, and nothing is known against them");
    (0..3).for_each(|server| note(&mut found, server, 1_700_000_000_000_000_000));
    (3..5).for_each(|server| note(&mut found, server, encoding.0 + 1));
    assert_eq!(digests(&found), new_digests);
    let verdict = found.verdict(SmallFile::Ecsum, expected);
    assert_eq!(names(&verdict.good), ["3", "4"]);
    assert_eq!((verdict.bad.len(), problem(&verdict, "0")), (3, Some(&Problem::Outdated)));

    let mut found = copies(SmallFile::Ecsum, &[old, old]);
    (0..2).for_each(|server| note(&mut found, server, 1_700_000_000_000_000_000));
    assert_eq!((digests(&found), found.outdated(encoding).len()), (Some(Vec::new()), 2));
    assert_eq!(found.verdict(SmallFile::Ecsum, expected), Verdict::default());
}

/// A single server with an outdated file may be the only one that answers.
#[test]
fn an_encoding_has_no_digests_until_most_servers_agree_on_them() {
    let new = ecsum(1, 100);
    let info = VolumeInfo { ratio: ratio(), encoding: Encoding(7), shard_bytes: Some(100) };
    let all = Ecsum::decode(&new).expect("just made").digests();
    for (servers, digests) in [(3, all), (4, Vec::new())] {
        let mut found = copies(SmallFile::Ecsum, &[Some(&*new), Some(&*new)]);
        found.note_asked(servers);
        let known = Known::of(&info, &found, Some(100)).expect("the length is known");
        assert_eq!((known.shard_bytes, known.digests), (100, digests), "{servers} servers");
    }
}

/// A server that was upgraded first may write files that older programs cannot read.
#[test]
fn checksums_of_a_newer_version_are_kept_and_count_as_different() {
    let (known, mut newer) = (ecsum(1, 100), ecsum(1, 100));
    newer[5] = 2;
    let (known, newer) = (Some(&*known), Some(&*newer));
    let found = copies(SmallFile::Ecsum, &[known, known, newer]);
    let verdict = found.verdict(SmallFile::Ecsum, expected());
    assert_eq!((names(&verdict.good), verdict.bad.len()), (vec!["0", "1"], 0));
    assert_eq!(names(found.newer()), ["2"]);

    let mut found = copies(SmallFile::Ecsum, &[known, newer]);
    found.note_asked(2);
    assert_eq!(found.verdict(SmallFile::Ecsum, expected()), Verdict::default());
    assert_eq!(found.checksums(Encoding(7), ratio(), Some(100)), Checksums::Disputed { agree: 1, of: 2 });
    let mut older = ecsum(1, 100);
    older[5] = 0;
    let verdict =
        copies(SmallFile::Ecsum, &[known, known, Some(&*older)]).verdict(SmallFile::Ecsum, expected());
    assert!(matches!(problem(&verdict, "2"), Some(Problem::Damaged(_))), "there is no such version");
}

#[test]
fn most_servers_with_checksums_of_other_shards_are_not_right() {
    let (new, short) = (ecsum(1, 100), ecsum(1, 99));
    let (new, short) = (Some(&*new), Some(&*short));
    let found = copies(SmallFile::Ecsum, &[new, short, short]);
    assert_eq!(found.verdict(SmallFile::Ecsum, expected()), Verdict::default());
    let found = copies(SmallFile::Ecsum, &[new, new, short]);
    assert_eq!(names(&found.verdict(SmallFile::Ecsum, expected()).good), ["0", "1"]);
}

#[test]
fn an_encoding_is_as_most_of_its_vif_files_describe_it() {
    let sized = |encoding: i64, bytes: u64| {
        let text = String::from_utf8(vif(encoding)).expect("text");
        text.replace("\"dataShards\"", &format!("\"blockSize\": \"{bytes}\", \"dataShards\"")).into_bytes()
    };
    let (right, wrong, other) = (sized(7, 100), sized(7, 50), sized(8, 50));
    let (right, wrong, other) = (Some(&*right), Some(&*wrong), Some(&*other));
    let described = |bytes: Bytes<'_>| {
        copies(SmallFile::Vif, bytes).description(Encoding(7)).map(|info| info.shard_bytes)
    };
    assert_eq!(described(&[wrong, right, right]), Ok(Some(100)));
    assert_eq!(described(&[other, other, right]), Ok(Some(100)), "another encoding's say nothing about it");
    let garbage: Option<&[u8]> = Some(b"{ garbage");
    let cases: [(Bytes<'_>, &str); 5] = [
        (&[wrong, right], "no majority"),
        (&[other], "another encoding"),
        (&[None], "has no .vif"),
        (&[garbage], ".vif on 0"),
        (&[], "no server"),
    ];
    for (bytes, why) in cases {
        let error = described(bytes).expect_err("unknown");
        assert!(error.contains(why), "{error}");
    }
}
