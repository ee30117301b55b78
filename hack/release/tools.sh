# shellcheck shell=bash
# The tools and functions of releases, for scripts and tests to source. The tools are run by version, so that their dependencies stay out of
# go.mod; Go keeps the built programs in its cache.
cosign() { go run github.com/sigstore/cosign/v2/cmd/cosign@v2.6.5 "$@"; }
crane() { go run github.com/google/go-containerregistry/cmd/crane@v0.22.1 "$@"; }
cyclonedx() { go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 "$@"; }
helm() { go run helm.sh/helm/v4/cmd/helm@v4.3.1 "$@"; }
validate_krew() { go run sigs.k8s.io/krew/cmd/validate-krew-manifest@v0.4.3 "$@"; }
actionlint() { go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 "$@"; }

# archive writes a tar file that depends on the content of its files only.
archive() { # tar arguments...
	tar --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --create "$@"
}

# write_checksums writes the checksums of all files in a folder.
write_checksums() { # folder
	rm -f "$1/checksums.txt"
	(cd "$1" && sums=$(sha256sum -- *) && echo "$sums" >checksums.txt)
}
