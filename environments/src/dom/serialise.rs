//! Serialises a page, or its pruned view, as XML in lxml's format.

use super::tree::{IDENT, Tree};
use super::view::View;

impl View<'_> {
    /// The XML of the view.
    pub fn to_xml(&self) -> String {
        let mut xml = String::new();
        self.write_xml(0, None, &mut xml, |view, place, xml| {
            let node = view.node(place);
            for attribute in view.tree.attributes(node) {
                let name = view.tree.name_of(attribute.name);
                if name != IDENT || view.entries[place].keeps_ident {
                    write_attribute(xml, name, view.tree.characters(attribute.value));
                }
            }
            (!node.text.is_empty()).then(|| view.tree.characters(node.text).to_owned())
        });
        xml
    }

    /// Writes the XML of the element at index `place` with its contents and its tail; `cut` is the index of
    /// an element to leave out. `contents` writes an element's attributes and returns the characters it
    /// starts with; `None` if it has none, not even empty ones.
    pub(super) fn write_xml(
        &self,
        place: usize,
        cut: Option<usize>,
        xml: &mut String,
        mut contents: impl FnMut(&Self, usize, &mut String) -> Option<String>,
    ) {
        let mut open: Vec<usize> = Vec::new();
        let (mut at, end) = (place, self.entries[place].end as usize);
        loop {
            while let Some(inner) = open.pop_if(|inner| at >= self.entries[*inner].end as usize) {
                xml.push_str("</");
                xml.push_str(self.tree.name(self.node(inner)));
                xml.push('>');
                self.write_tail(inner, xml);
            }
            if at >= end {
                return;
            }
            let entry = self.entries[at];
            if cut == Some(at) {
                at = entry.end as usize;
                continue;
            }
            xml.push('<');
            xml.push_str(self.tree.name(self.node(at)));
            let text = contents(self, at, xml);
            let children = at + 1..entry.end as usize;
            let childless = children.is_empty()
                || cut.is_some_and(|cut| cut == at + 1 && self.entries[cut].end == entry.end);
            if text.is_none() && childless {
                xml.push_str("/>");
                self.write_tail(at, xml);
                at = entry.end as usize;
                continue;
            }
            xml.push('>');
            escape(xml, &text.unwrap_or_default(), false);
            open.push(at);
            at += 1;
        }
    }

    fn write_tail(&self, place: usize, xml: &mut String) {
        escape(xml, self.tree.characters(self.node(place).tail), false);
    }
}

impl Tree {
    /// The whole page's XML.
    pub fn to_xml(&self) -> String {
        View::whole(self).to_xml()
    }
}

pub(super) fn write_attribute(xml: &mut String, name: &str, value: &str) {
    xml.push(' ');
    xml.push_str(name);
    xml.push_str("=\"");
    escape(xml, value, true);
    xml.push('"');
}

/// Escapes characters for XML.
pub(super) fn escape(xml: &mut String, text: &str, in_attribute: bool) {
    for character in text.chars() {
        match character {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '\r' => xml.push_str("&#13;"),
            '"' if in_attribute => xml.push_str("&quot;"),
            '\n' if in_attribute => xml.push_str("&#10;"),
            '\t' if in_attribute => xml.push_str("&#9;"),
            other => xml.push(other),
        }
    }
}
