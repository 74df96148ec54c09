//! Writes the info hashes of a population to a file, for trackers with an allow list.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use crate::plan::Population;

/// Writes the info hash of every swarm, a line of 40 hexadecimal digits each: the format of
/// opentracker's `access.whitelist` and of aquatic's access list.
///
/// # Errors
/// When the file cannot be written.
pub fn write(population: &Population, file: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(file)?);
    for swarm in 0..population.swarms {
        writeln!(file, "{}", population.info_hash(swarm))?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Profile;
    use crate::plan::population::Addresses;

    #[test]
    fn every_swarm_has_a_line() {
        let mut swarms = Profile::classic().swarms;
        swarms.count = 100;
        let addresses = Addresses::new(&["127.0.0.2".parse().unwrap()]);
        let population = Population::new(&swarms, 0.0, addresses, 7, false);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hashes");
        write(&population, &path).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), population.swarms as usize);
        for (swarm, line) in lines.iter().enumerate() {
            let bytes = population.info_hash(swarm as u32).0;
            let wanted: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(*line, wanted);
        }
    }
}
