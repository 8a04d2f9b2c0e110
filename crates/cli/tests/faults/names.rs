//! File names that try to control the terminal on which they are listed.

use crate::cluster::Cluster;

const NAME: &str = "a\u{1b}[2J\u{1b}]0;owned\u{7}\n\u{202e}gpj\u{9b}31m";
const SHOWN: &str = r"a\u{1b}[2J\u{1b}]0;owned\u{7}\n\u{202e}gpj\u{9b}31m";

#[test]
fn names_that_a_terminal_would_obey_are_shown_escaped() {
    let mut cluster = Cluster::new(4, "rs-4-2", "64KiB");
    let content = cluster.put("film", 200_000);
    let film = cluster.path("film");
    let copy = cluster.path("copy");
    let (film, copy) = (film.to_str().unwrap(), copy.to_str().unwrap());
    let is_harmless = |text: &str| !text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}']);
    let says = |arguments: &[&str], code: i32| {
        let said = cluster.mend(arguments);
        let all = format!("{}{}", said.out, said.err);
        assert!(said.code == code && all.contains(SHOWN) && is_harmless(&all), "{arguments:?}: {said:?}");
    };
    says(&["put", film, "--name", NAME], 0);
    says(&["put", film, "--name", NAME], 1); // The coordinator reports that the name exists.
    says(&["ls"], 0);
    says(&["ls", "-l"], 0);
    says(&["stat", NAME], 0);
    says(&["get", NAME, "-o", copy], 0);
    assert!(std::fs::read(copy).unwrap() == content);
    says(&["get", NAME], 1);
    says(&["get", NAME, "-o", copy, "--range", "200000+1"], 1);
    says(&["get", NAME, "-o", &format!("/no/{SHOWN}/x")], 1);
    let evil = cluster.path(&NAME.replace('/', "-"));
    std::fs::write(&evil, "x").unwrap();
    says(&["put", evil.to_str().unwrap()], 1);
    // Too many blocks of the file are lost, so the client's error contains the file name.
    let listed = cluster.mend(&["ls", "--output", "json"]).ok().json();
    assert!(listed.as_array().unwrap().iter().any(|file| file["name"] == NAME), "{listed}");
    let stat = cluster.mend(&["stat", NAME, "--output", "json"]).ok().json();
    assert_eq!(stat["name"], NAME);
    for helper in ["h1", "h2", "h3"] {
        cluster.kill(helper);
    }
    cluster.eventually("the helpers are known to be down", |cluster| {
        cluster.mend(&["status", "--output", "json"]).json()["nodes_down"].as_array().unwrap().len() == 3
    });
    let said = cluster.mend(&["get", NAME, "-o", copy]);
    assert!(said.code == 3 && said.err.contains(SHOWN) && is_harmless(&said.err), "{said:?}");
    let said = cluster.mend(&["rm", NAME]).ok();
    assert!(said.out.contains(SHOWN) && is_harmless(&said.out), "{said:?}");
    let said = cluster.mend(&["rm", NAME]);
    assert!(said.code == 1 && said.err.contains(SHOWN) && is_harmless(&said.err), "{said:?}");
}
