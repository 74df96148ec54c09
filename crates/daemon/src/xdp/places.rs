//! The tracker's addresses at the interfaces of the program: those that an interface, or a VLAN on
//! it, has and that a socket is bound to.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use onrush_net::xdp::device::Device;
use onrush_tracker::xdp::Place;

/// Each place with the MAC address of its device, and the number of the interface's counters.
/// `interfaces` are the indices of those that have the program, with these numbers.
pub(super) fn places(
    interfaces: &[(u32, u16)],
    devices: &[Device],
    addresses: &[(String, IpAddr)],
    listen: &[SocketAddr],
) -> HashMap<Place, ([u8; 6], u16)> {
    let mut places = HashMap::new();
    for device in devices {
        let (index, vlan) = device.vlan.unwrap_or((device.index, 0));
        let found = interfaces.iter().find(|(interface, _)| *interface == index);
        let Some((interface, number)) = found else { continue };
        // An IPv4 address may have a label: the name of the interface, a colon and more.
        let is_name = |label: &str| label.split(':').next() == Some(&device.name);
        // The program drops frames from 127.0.0.1 and ::1.
        let is_served = |(label, ip): &&(String, IpAddr)| is_name(label) && !ip.is_loopback();
        for (_, ip) in addresses.iter().filter(is_served) {
            for listen in listen.iter().filter(|listen| is_bound(listen.ip(), *ip)) {
                let address = SocketAddr::new(*ip, listen.port());
                let place = Place { interface: *interface, vlan, address };
                places.insert(place, (device.mac, *number));
            }
        }
    }
    places
}

/// Whether a socket that is bound to `bound` receives what is sent to `ip`.
fn is_bound(bound: IpAddr, ip: IpAddr) -> bool {
    bound == ip || bound.is_unspecified() && bound.is_ipv4() == ip.is_ipv4()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bound_addresses_of_an_interface_and_its_vlans() {
        let device = |index: u32, name: &str, vlan| Device {
            index,
            name: name.to_owned(),
            mac: [2, 0, 0, 0, 0, index as u8],
            vlan,
            ..Device::default()
        };
        let devices = [
            device(1, "lo", None),
            device(2, "eth0", None),
            device(3, "eth1", None),
            device(4, "eth0.7", Some((2, 7))),
            device(5, "eth1.7", Some((3, 7))),
        ];
        let addresses = [
            ("lo", "127.0.0.1"),
            ("eth0", "127.0.0.2"),
            ("eth0", "192.0.2.1"),
            ("eth0:second", "192.0.2.2"),
            ("eth0", "2001:db8::1"),
            ("eth1", "192.0.2.3"),
            ("eth0.7", "198.51.100.1"),
            ("eth1.7", "198.51.100.2"),
        ];
        let addresses = addresses.map(|(name, ip)| (name.to_owned(), ip.parse().unwrap()));
        let found = |listen: &[&str]| {
            let listen: Vec<_> = listen.iter().map(|text| text.parse().unwrap()).collect();
            let all = places(&[(9, 0), (2, 1)], &devices, &addresses, &listen);
            let mut shown: Vec<_> = all
                .into_iter()
                .map(|(Place { interface, vlan, address }, (mac, number))| {
                    assert_eq!((interface, number), (2, 1));
                    assert_eq!(mac[5], if vlan == 0 { 2 } else { 4 });
                    format!("{vlan} {address}")
                })
                .collect();
            shown.sort();
            shown
        };
        let v4 = ["0 192.0.2.1:80", "0 192.0.2.2:80", "7 198.51.100.1:80"];
        assert_eq!(found(&["0.0.0.0:80"]), v4);
        assert_eq!(found(&["[::]:80", "[::]:81"]), ["0 [2001:db8::1]:80", "0 [2001:db8::1]:81"]);
        assert_eq!(found(&["192.0.2.2:9", "192.0.2.3:9"]), ["0 192.0.2.2:9"]);
    }
}
