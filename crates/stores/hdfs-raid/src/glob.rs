//! Patterns of paths.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// The most alternatives that the braces of a pattern may stand for.
const MOST_ALTERNATIVES: usize = 256;
/// The component that stands for any number of folders.
const ANY_FOLDERS: &str = "**";

/// A pattern of paths, such as `/warehouse/*/2024` or `/logs/**/*.{gz,zst}`.
///
/// In a name, `*` stands for any characters and `?` for one character. The component `**` stands for any
/// number of folders, also for none. `{a,b}` stands for either text; braces cannot be nested. A pattern
/// [covers](Self::covers) the files and folders that it matches and everything below these folders.
///
/// ```
/// use hdfs_raid::Glob;
///
/// let glob: Glob = "/logs/**/*.gz".parse()?;
/// assert!(glob.covers("/logs/a.gz") && glob.covers("/logs/2024/05/a.gz"));
/// assert!(!glob.covers("/logs/a.txt"));
/// assert!("/logs".parse::<Glob>()?.covers("/logs/2024/a.txt"));
/// # Ok::<(), hdfs_raid::GlobError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Glob {
    text: String,
    /// The components of each alternative.
    alternatives: Vec<Vec<String>>,
}

/// Why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// The text is not an absolute path.
    #[error("the pattern `{0}` does not begin with /")]
    Relative(String),
    /// A brace is not closed, or braces are nested.
    #[error("the pattern `{0}` has an open or a nested brace: write {{a,b}}")]
    Brace(String),
    /// The braces stand for too many texts.
    #[error("the braces of the pattern `{0}` stand for more than {MOST_ALTERNATIVES} texts")]
    TooMany(String),
}

impl Glob {
    /// Whether the pattern matches the path itself or a folder that contains it.
    pub fn covers(&self, path: &str) -> bool {
        let path: Vec<&str> = components(path).collect();
        self.alternatives.iter().any(|pattern| covers(pattern, &path))
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Glob {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        let alternatives = expanded(text)?;
        if !alternatives.iter().all(|text| text.starts_with('/')) {
            return Err(GlobError::Relative(text.to_owned()));
        }
        let split = |text: &String| components(text).map(str::to_owned).collect::<Vec<_>>();
        Ok(Self { text: text.to_owned(), alternatives: alternatives.iter().map(split).collect() })
    }
}

impl TryFrom<String> for Glob {
    type Error = GlobError;

    fn try_from(text: String) -> Result<Self, GlobError> {
        text.parse()
    }
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|component| !component.is_empty())
}

/// Returns the texts for which the braces of a pattern stand.
fn expanded(text: &str) -> Result<Vec<String>, GlobError> {
    let brace = || GlobError::Brace(text.to_owned());
    let (mut begun, mut rest) = (vec![String::new()], text);
    while let Some((before, after)) = rest.split_once('{') {
        let (choices, after) = after.split_once('}').ok_or_else(brace)?;
        if choices.contains('{') {
            return Err(brace());
        }
        let longer = |begun: &String| {
            let texts = choices.split(',').map(|choice| format!("{begun}{before}{choice}"));
            texts.collect::<Vec<_>>()
        };
        begun = begun.iter().flat_map(longer).collect();
        if begun.len() > MOST_ALTERNATIVES {
            return Err(GlobError::TooMany(text.to_owned()));
        }
        rest = after;
    }
    begun.iter_mut().for_each(|begun| begun.push_str(rest));
    Ok(begun)
}

/// Whether the pattern matches some first components of the path.
fn covers(pattern: &[String], path: &[&str]) -> bool {
    // After each component of the pattern: the numbers of components of the path that it may have matched.
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for component in pattern {
        reached = if component == ANY_FOLDERS {
            let first = reached.iter().position(|&is_reached| is_reached).unwrap_or(reached.len());
            (0..reached.len()).map(|at| at >= first).collect()
        } else {
            let follows = |at: usize| at > 0 && reached[at - 1] && matches_name(component, path[at - 1]);
            (0..reached.len()).map(follows).collect()
        };
    }
    reached.contains(&true)
}

/// Whether the pattern matches the whole name.
fn matches_name(pattern: &str, name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for wanted in pattern.chars() {
        reached = if wanted == '*' {
            let first = reached.iter().position(|&is_reached| is_reached).unwrap_or(reached.len());
            (0..reached.len()).map(|at| at >= first).collect()
        } else {
            let is_match = |at: usize| wanted == '?' || wanted == name[at - 1];
            (0..reached.len()).map(|at| at > 0 && reached[at - 1] && is_match(at)).collect()
        };
    }
    reached[name.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn covered(pattern: &str, path: &str) -> bool {
        pattern.parse::<Glob>().expect("a pattern").covers(path)
    }

    #[test]
    fn patterns_cover_paths() {
        for (pattern, path, expected) in [
            ("/", "/a/b", true),
            ("/a", "/a", true),
            ("/a", "/a/b/c", true),
            ("/a", "/ab", false),
            ("/a/*", "/a", false),
            ("/a/*", "/a/b/c", true),
            ("/a/*.gz", "/a/b.gz", true),
            ("/a/*.gz", "/a/b/c.gz", false),
            ("/a/**/*.gz", "/a/b/c.gz", true),
            ("/a/**/*.gz", "/a/c.gz", true),
            ("/a/**", "/a", true),
            ("/a/?", "/a/ä", true),
            ("/a/?", "/a/bc", false),
            ("/{a,b}/c", "/b/c/d", true),
            ("/{a,b}/c", "/d/c", false),
            ("/x{,/**}/y", "/x/1/2/y", true),
            ("/a//b/", "/a/b", true),
        ] {
            assert_eq!(covered(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let error = |text: &str| text.parse::<Glob>().expect_err("no pattern").to_string();
        assert!(error("a/b").contains("does not begin with /"));
        assert!(error("{/a,b}").contains("does not begin with /"));
        assert!(error("/{a").contains("{a,b}") && error("/{a,{b}}").contains("nested"));
        assert!(error(&format!("/{}", "{a,b}".repeat(9))).contains("256"));
    }

    /// The slow reference: tries every way to match.
    fn slow(pattern: &[&str], path: &[&str]) -> bool {
        match pattern {
            [] => true,
            ["**", rest @ ..] => (0..=path.len()).any(|skipped| slow(rest, &path[skipped..])),
            [first, rest @ ..] => {
                let chars = |text: &str| text.chars().collect::<Vec<_>>();
                path.split_first()
                    .is_some_and(|(name, below)| slow_name(&chars(first), &chars(name)) && slow(rest, below))
            }
        }
    }

    fn slow_name(pattern: &[char], name: &[char]) -> bool {
        match pattern {
            [] => name.is_empty(),
            ['*', rest @ ..] => (0..=name.len()).any(|skipped| slow_name(rest, &name[skipped..])),
            [wanted, rest @ ..] => name
                .split_first()
                .is_some_and(|(first, below)| (*wanted == '?' || wanted == first) && slow_name(rest, below)),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_slow_reference(
            pattern in prop::collection::vec("[ab*?]{1,3}|\\*\\*", 0..5),
            path in prop::collection::vec("[ab]{1,3}", 0..6),
        ) {
            let (text, full) = (format!("/{}", pattern.join("/")), format!("/{}", path.join("/")));
            let pattern: Vec<&str> = pattern.iter().map(String::as_str).collect();
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            prop_assert_eq!(covered(&text, &full), slow(&pattern, &path), "{} {}", text, full);
        }
    }
}
