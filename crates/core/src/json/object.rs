//! JSON object in input order, with repeated keys.

use std::borrow::Cow;

use super::value::Value;

/// One key with its value.
pub(super) type ObjectEntry<'a> = (Cow<'a, str>, Value<'a>);

/// JSON object that keeps the order of its entries and every copy of a repeated key.
///
/// Reading by name gives the last copy, as CPython and most readers do. Two objects are equal when
/// their entries are equal one by one; to compare regardless of order, compare canonical bytes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Object<'a> {
    entries: Vec<ObjectEntry<'a>>,
}

impl<'a> Object<'a> {
    /// An object without entries.
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    pub(super) const fn from_entries(entries: Vec<ObjectEntry<'a>>) -> Self {
        Self { entries }
    }

    pub(super) fn entries(&self) -> &[ObjectEntry<'a>] {
        &self.entries
    }

    /// The value under `name`; the last one when the key is repeated.
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.entries.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Whether any entry has this key.
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// A key that appears more than once (the first of them by code point), if there is one.
    pub fn repeated_key(&self) -> Option<&str> {
        if self.entries.is_sorted_by(|(a, _), (b, _)| a < b) {
            return None;
        }
        let mut keys: Vec<&str> = self.entries.iter().map(|(key, _)| key.as_ref()).collect();
        keys.sort_unstable();
        keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }

    /// Adds an entry at the end. A key that is already there is then repeated and the new value
    /// is the one [`get`](Self::get) finds.
    pub fn push(&mut self, key: impl Into<Cow<'a, str>>, value: impl Into<Value<'a>>) {
        self.entries.push((key.into(), value.into()));
    }

    /// Removes every entry under `name` and returns the value [`get`](Self::get) would have
    /// returned.
    pub fn remove(&mut self, name: &str) -> Option<Value<'a>> {
        self.entries.extract_if(.., |(key, _)| key == name).last().map(|(_, value)| value)
    }

    /// Entries in order of appearance, repeated keys included.
    pub fn iter(&self) -> Iter<'_, 'a> {
        Iter { entries: self.entries.iter() }
    }

    /// Number of entries, repeated keys counted each time.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The same object, owning its text.
    pub fn into_owned(self) -> Object<'static> {
        let owned =
            |(key, value): ObjectEntry<'a>| (Cow::Owned(key.into_owned()), value.into_owned());
        Object { entries: self.entries.into_iter().map(owned).collect() }
    }
}

/// Iterates over the entries of an [`Object`] in order of appearance.
#[derive(Debug, Clone)]
pub struct Iter<'o, 'a> {
    entries: std::slice::Iter<'o, ObjectEntry<'a>>,
}

impl<'o, 'a> Iterator for Iter<'o, 'a> {
    type Item = (&'o str, &'o Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next().map(|(key, value)| (key.as_ref(), value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_, '_> {}

/// Takes an [`Object`] apart in order of appearance.
#[derive(Debug)]
pub struct IntoIter<'a> {
    entries: std::vec::IntoIter<ObjectEntry<'a>>,
}

impl<'a> Iterator for IntoIter<'a> {
    type Item = (Cow<'a, str>, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for IntoIter<'_> {}

impl<'a> IntoIterator for Object<'a> {
    type Item = (Cow<'a, str>, Value<'a>);
    type IntoIter = IntoIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        IntoIter { entries: self.entries.into_iter() }
    }
}

impl<'o, 'a> IntoIterator for &'o Object<'a> {
    type Item = (&'o str, &'o Value<'a>);
    type IntoIter = Iter<'o, 'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, K: Into<Cow<'a, str>>> FromIterator<(K, Value<'a>)> for Object<'a> {
    fn from_iter<I: IntoIterator<Item = (K, Value<'a>)>>(entries: I) -> Self {
        Self { entries: entries.into_iter().map(|(key, value)| (key.into(), value)).collect() }
    }
}

impl<'a, K: Into<Cow<'a, str>>> Extend<(K, Value<'a>)> for Object<'a> {
    fn extend<I: IntoIterator<Item = (K, Value<'a>)>>(&mut self, entries: I) {
        self.entries.extend(entries.into_iter().map(|(key, value)| (key.into(), value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twice() -> Object<'static> {
        Object::from_iter([("b", 1.into()), ("a", 2.into()), ("b", 3.into())])
    }

    #[test]
    fn the_last_of_repeated_keys_is_read() {
        assert_eq!(twice().get("b"), Some(&Value::from(3)));
        assert_eq!(twice().get("c"), None);
    }

    #[test]
    fn a_repeated_key_is_found_at_any_position() {
        assert_eq!(twice().repeated_key(), Some("b"));
        let adjacent = Object::from_iter([("a", 1.into()), ("a", 1.into())]);
        assert_eq!(adjacent.repeated_key(), Some("a"));
        let unsorted = Object::from_iter([("b", 1.into()), ("a", 1.into())]);
        assert_eq!(unsorted.repeated_key(), None);
        assert_eq!(Object::new().repeated_key(), None);
    }

    #[test]
    fn order_and_repeats_are_kept() {
        let object = twice();
        let keys: Vec<&str> = object.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["b", "a", "b"]);
        assert_eq!((object.len(), object.is_empty()), (3, false));
    }

    #[test]
    fn removing_a_key_removes_every_copy() {
        let mut object = twice();
        assert_eq!(object.remove("b"), Some(Value::from(3)));
        assert_eq!(object, Object::from_iter([("a", 2.into())]));
        assert_eq!(object.remove("b"), None);
    }
}
