//! Parses the keys in `[[helper]]` that belong to the attached store.
//!
//! This crate defines none of these keys. The store's crate defines them with [`HelperSettings`] and reads
//! them with [`Cluster::helper_settings`](crate::Cluster::helper_settings). A key that neither crate defines
//! is an error. Without an attached store, only this crate's keys are allowed.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use toml_edit::Document;

use crate::config::{Contradiction, KeyLocation};
use crate::{Config, ConfigError, HelperConfig, Name};

/// The keys in `[[helper]]` that belong to one kind of store. Parsing ignores the other keys of the entry, so
/// an implementation must not deny unknown fields.
pub trait HelperSettings: DeserializeOwned {
    /// Returns a key whose value contradicts other values of the helper, and an error message.
    fn contradiction(&self) -> Option<(&'static str, String)> {
        None
    }
}

/// The settings when no store is attached: no keys.
#[derive(Deserialize)]
pub(crate) struct NoSettings {}

impl HelperSettings for NoSettings {}

/// Parses and validates the settings of all helpers in the text of a `mend.toml`.
pub(crate) fn helper_settings<T: HelperSettings>(
    text: &str,
    path: &Path,
) -> Result<BTreeMap<Name, T>, ConfigError> {
    #[derive(Deserialize)]
    struct Helpers<T> {
        #[serde(rename = "helper", default = "Vec::new")]
        settings: Vec<T>,
    }
    let config = Config::parse(text, path)?;
    let document = document(text, path)?;
    check_keys::<T>(&document, path)?;
    let parsed = toml_edit::de::from_str::<Helpers<T>>(text);
    let parsed = parsed.map_err(|error| ConfigError::at(path, text, error.message(), error.span()))?;
    for (index, settings) in parsed.settings.iter().enumerate() {
        if let Some((key, message)) = settings.contradiction() {
            let found = Contradiction { place: KeyLocation::Helper(index, key), message };
            return Err(found.error_in(&document, path));
        }
    }
    let names = config.helpers.into_iter().map(|helper| helper.name);
    Ok(names.zip(parsed.settings).collect())
}

pub(crate) fn document<'t>(text: &'t str, path: &Path) -> Result<Document<&'t str>, ConfigError> {
    Document::parse(text).map_err(|error| ConfigError::at(path, text, error.message(), error.span()))
}

/// Rejects the first key in a `[[helper]]` that is neither in [`HelperConfig`] nor in `T`.
pub(crate) fn check_keys<T: HelperSettings>(
    document: &Document<&str>,
    path: &Path,
) -> Result<(), ConfigError> {
    let known: Vec<&str> = [fields::<HelperConfig>(), fields::<T>()].concat();
    let Some(helpers) = document.as_item().get("helper") else { return Ok(()) };
    let tables =
        (0_usize..).map_while(|index| helpers.get(index)).filter_map(|helper| helper.as_table_like());
    for table in tables {
        if let Some((key, _)) = table.iter().find(|(key, _)| !known.contains(key)) {
            let known: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
            let message = format!("unknown field `{key}`, expected one of {}", known.join(", "));
            let span = table.key(key).and_then(|key| key.span());
            return Err(ConfigError::at(path, document.raw(), &message, span));
        }
    }
    Ok(())
}

/// Returns the names of a struct's fields as serde deserializes them.
fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // Deserialization always fails; it only records the names.
    let _ = T::deserialize(FieldNames(&mut fields));
    fields
}

/// A deserializer that records the field names of a struct and then fails.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("no values"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("not a struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"cluster_id = "000102030405060708090a0b0c0d0e0f"
[coordinator]
api = "127.0.0.1:7400"
control = "127.0.0.1:7401"
[defaults]
code = "rs-14-10"
block_bytes = "64MiB"
scheme = "auto"
[store]
kind = "shelf"
[[helper]]
name = "h1"
listen = "127.0.0.1:7410"
drawer = 3
[[helper]]
name = "h2"
listen = "127.0.0.1:7411"
"#;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Shelf {
        #[serde(default)]
        drawer: u8,
    }

    impl HelperSettings for Shelf {
        fn contradiction(&self) -> Option<(&'static str, String)> {
            (self.drawer > 9).then(|| ("drawer", "a shelf has 9 drawers".to_owned()))
        }
    }

    fn read(text: &str) -> Result<BTreeMap<Name, Shelf>, String> {
        helper_settings(text, Path::new("mend.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_store_reads_its_own_keys_of_all_helpers() {
        let settings = read(TEXT).unwrap();
        assert_eq!(settings.values().collect::<Vec<_>>(), [&Shelf { drawer: 3 }, &Shelf { drawer: 0 }]);
        assert!(Config::parse(TEXT, Path::new("mend.toml")).is_ok(), "this crate leaves them to the store");
    }

    #[test]
    fn wrong_keys_and_values_are_named_with_their_line() {
        let error = read(&TEXT.replace("drawer", "draw")).unwrap_err();
        let expected = "mend.toml:14: unknown field `draw`, expected one of `name`, `listen`";
        assert!(error.starts_with(expected) && error.contains(", `drawer`; the line reads"), "{error}");
        let error = read(&TEXT.replace('3', "\"three\"")).unwrap_err();
        assert!(error.starts_with("mend.toml:1"), "{error}");
        let error = read(&TEXT.replace("= 3", "= 33")).unwrap_err();
        assert!(error.starts_with("mend.toml:14: a shelf has 9 drawers"), "{error}");
    }

    #[test]
    fn without_a_store_its_keys_are_unknown() {
        let text = TEXT.replace("[store]\nkind = \"shelf\"\n", "");
        let error = Config::parse(&text, Path::new("mend.toml")).unwrap_err().to_string();
        assert!(error.starts_with("mend.toml:12: unknown field `drawer`"), "{error}");
    }
}
