//! Maps generated names of databases and accounts to those of the benchmark, because they differ between
//! runs.

use lumos_environments::sql::{Cell, Fetched, Row};

/// Prefix of generated database and account names.
pub(super) const PREFIX: &str = "lumos_e_";
/// Name of a session's account as shown to the model.
const ACCOUNT: &str = "lumos";

/// Names of a session.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// The database of the benchmark.
    pub(super) base: String,
    /// The account of the session.
    pub(super) account: String,
    /// The copy that the session writes to, after its first write.
    pub(super) copy: Option<String>,
}

impl Names {
    /// Replaces the generated names in a result.
    pub(super) fn restored(&self, fetched: Fetched) -> Fetched {
        match fetched {
            Fetched::Failed { message } => Fetched::Failed { message: self.restore(message) },
            Fetched::Rows(mut rows) => {
                // A list of databases contains the copy in addition to the base; both have the same name
                // here.
                let is_base = |row: &Row| matches!(row.as_slice(), [Cell::Text(name)] if *name == self.base);
                if rows.iter().any(is_base) {
                    rows.retain(|row| {
                        !matches!(row.as_slice(), [Cell::Text(name)] if Some(name) == self.copy.as_ref())
                    });
                }
                let restored = |row: Row| row.into_iter().map(|cell| self.cell(cell)).collect();
                Fetched::Rows(rows.into_iter().map(restored).collect())
            }
            Fetched::Nothing => Fetched::Nothing,
        }
    }

    fn cell(&self, cell: Cell) -> Cell {
        match cell {
            Cell::Text(text) => Cell::Text(self.restore(text)),
            Cell::Bytes(bytes) if has_prefix(&bytes) => {
                Cell::Bytes(self.restore(String::from_utf8_lossy(&bytes).into_owned()).into_bytes())
            }
            other => other,
        }
    }

    /// Replaces the generated names in a text, ignoring case.
    pub(super) fn restore(&self, mut text: String) -> String {
        if !has_prefix(text.as_bytes()) {
            return text;
        }
        let copy = self.copy.iter().map(|copy| (copy.as_str(), self.base.as_str()));
        for (generated, name) in copy.chain([(self.account.as_str(), ACCOUNT)]) {
            let mut from = 0;
            while let Some(at) = find(text.get(from..).unwrap_or_default(), generated) {
                text.replace_range(from + at..from + at + generated.len(), name);
                from += at + name.len();
            }
        }
        text
    }
}

fn has_prefix(bytes: &[u8]) -> bool {
    bytes.windows(PREFIX.len()).any(|window| window.eq_ignore_ascii_case(PREFIX.as_bytes()))
}

/// Finds an ASCII name in a text, ignoring case.
fn find(text: &str, name: &str) -> Option<usize> {
    text.as_bytes().windows(name.len()).position(|window| window.eq_ignore_ascii_case(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_are_replaced_wherever_they_stand() {
        let names = Names {
            base: "world_1".to_owned(),
            account: "lumos_e_0a1b_u1".to_owned(),
            copy: Some("lumos_e_0a1b_d1".to_owned()),
        };
        let message = "(`lumos_e_0a1b_d1`.`city`) for 'lumos_e_0a1b_u1'@'%' LUMOS_E_0A1B_D1 é lumos_e_x";
        let restored = names.restored(Fetched::Failed { message: message.to_owned() });
        let expected = "(`world_1`.`city`) for 'lumos'@'%' world_1 é lumos_e_x";
        assert_eq!(restored, Fetched::Failed { message: expected.to_owned() });
        let rows = Fetched::Rows(vec![vec![
            Cell::Text("lumos_e_0a1b_d1".to_owned()),
            Cell::Bytes(b"\xfflumos".to_vec()),
            Cell::Integer(1),
        ]]);
        let expected = Fetched::Rows(vec![vec![
            Cell::Text("world_1".to_owned()),
            Cell::Bytes(b"\xfflumos".to_vec()),
            Cell::Integer(1),
        ]]);
        assert_eq!(names.restored(rows), expected);
        let list = |names: &[&str]| {
            Fetched::Rows(names.iter().map(|name| vec![Cell::Text((*name).to_owned())]).collect())
        };
        assert_eq!(names.restored(list(&["a", "lumos_e_0a1b_d1", "world_1"])), list(&["a", "world_1"]));
        assert_eq!(names.restored(list(&["lumos_e_0a1b_d1"])), list(&["world_1"]));
    }
}
