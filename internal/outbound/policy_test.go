package outbound

import (
	"errors"
	"net/netip"
	"testing"
)

func TestPolicyRefusesByAddressAfterResolution(t *testing.T) {
	loopback := Policy{AllowLoopback: true}
	lists := Policy{
		Allowed: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16")},
		Denied:  []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")},
	}
	for _, c := range []struct {
		policy  Policy
		address string
		open    bool
	}{
		{Policy{}, "10.0.0.1:80", true},
		{Policy{}, "192.168.1.1:443", true},
		{Policy{}, "[fd12::1]:80", true},
		{Policy{}, "93.184.216.34:80", true},
		{Policy{}, "127.0.0.1:80", false},
		{Policy{}, "127.9.9.9:80", false},
		{Policy{}, "[::1]:80", false},
		{Policy{}, "[::ffff:127.0.0.1]:80", false},
		{Policy{}, "169.254.169.254:80", false},
		{Policy{}, "[::ffff:169.254.169.254]:80", false},
		{Policy{}, "[64:ff9b::169.254.169.254]:80", false},
		{Policy{}, "[64:ff9b::10.0.0.1]:80", true},
		{Policy{}, "[2002:a9fe:a9fe::1]:80", false},
		{Policy{}, "[64:ff9b:1::169.254.169.254]:80", false},
		{Policy{}, "[64:ff9b:1:a9fe:a9:fe00::]:80", false},
		{Policy{}, "[64:ff9b:1:ffff::10.0.0.1]:80", false},
		{Policy{}, "[::ffff:0:169.254.169.254]:80", false},
		{Policy{}, "[::ffff:0:127.0.0.1]:80", false},
		{Policy{}, "[::ffff:0:10.0.0.1]:80", true},
		{Policy{}, "[::169.254.169.254]:80", false},
		{Policy{}, "[::127.0.0.1]:80", false},
		{Policy{}, "[2002:7f00:1::]:80", false},
		{Policy{}, "[2001:0:a9fe:a9fe::]:80", false},
		{Policy{}, "[2001:0:808:808:0:ffff:5601:5601]:80", false}, // Teredo of 169.254.169.254
		{Policy{}, "[2001:0:808:808:0:ffff:f5ff:fffe]:80", true},  // Teredo of 10.0.0.1
		{Policy{}, "[fd12::5efe:169.254.169.254]:80", false},
		{Policy{}, "[fd12::200:5efe:127.0.0.1]:80", false},
		{Policy{}, "[fd12::5efe:10.0.0.1]:80", true},
		{Policy{}, "[fd00:c1::a9fe:a9fe]:80", false},
		{Policy{}, "[fd00:a9fe:a9fe::1]:80", false},
		{Policy{}, "[fd00:42::42]:80", false},
		{Policy{}, "[fd00:42::43]:80", true},
		{Policy{}, "[fd00:ec2::23]:80", false},
		{Policy{}, "[2001:db8::1]:80", true},
		{Policy{}, "[fe80::1%eth0]:80", false},
		{Policy{}, "0.0.0.0:80", false},
		{Policy{}, "0.1.2.3:80", false},
		{Policy{}, "[::]:80", false},
		{Policy{}, "224.0.0.1:80", false},
		{Policy{}, "255.255.255.255:80", false},
		{Policy{}, "[ff02::1]:80", false},
		{Policy{}, "[fd00:ec2::254]:80", false},
		{Policy{}, "100.100.100.200:80", false},
		{Policy{}, "168.63.129.16:80", false},
		{Policy{}, "not-an-address:80", false},
		{loopback, "127.0.0.1:80", true},
		{loopback, "[::1]:80", true},
		{loopback, "169.254.169.254:80", false},
		{lists, "10.1.0.1:80", true},
		{lists, "10.9.0.1:80", false},
		{lists, "192.168.0.1:80", false},
		{lists, "169.254.1.1:80", false},
	} {
		err := c.policy.checkDial("tcp", c.address, nil)
		if open := err == nil; open != c.open {
			t.Errorf("%+v: dial %s: got %v, want open=%t", c.policy, c.address, err, c.open)
		}
		var refused *RefusedError
		if err != nil && !errors.As(err, &refused) {
			t.Errorf("dial %s: got %T, want a RefusedError", c.address, err)
		}
	}
}

func TestPolicyRefusesNamesOfMetadataServices(t *testing.T) {
	for host, open := range map[string]bool{
		"prometheus.monitoring":     true,
		"10.0.0.1":                  true,
		"metadata.google.internal":  false,
		"METADATA.google.internal.": false,
		"instance-data":             false,
		"169.254.169.254":           false,
		"2130706433":                false,
		"0x7f.1":                    false,
		"127.1":                     false,
		"localhost":                 false,
		"a.localhost":               false,
	} {
		if err := (Policy{}).checkName(host); (err == nil) != open {
			t.Errorf("%s: %v, want open=%t", host, err, open)
		}
	}
}
