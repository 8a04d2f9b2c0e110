//! Comparing helpers' blocks once the store has been listed.

use crate::error::ScrubError;
use crate::facts::Around;
use crate::out::Out;
use crate::stripes::Stripes;

impl Stripes {
    /// Notes the reason that the store is not listed, or compares the kept block lists after the first
    /// listing.
    pub(crate) fn note_unlisted(&mut self, around: Around<'_>, why: Option<&String>, out: &mut Out) {
        for (node, blocks) in self.news.set_unlisted(why) {
            if around.nodes.is_helper(node) {
                self.compare(around, node, &blocks, out);
                self.recheck_next(around, node, out);
            }
        }
    }
}

impl Stripes {
    /// Returns an error while the store is not listed, because an empty picture would look healthy.
    pub(crate) fn check_listed(&self) -> Result<(), ScrubError> {
        self.news.unlisted().map_or(Ok(()), |why| Err(ScrubError::Unlisted(why.to_owned())))
    }
}
