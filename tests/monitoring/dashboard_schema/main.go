// Reads a dashboard as Grafana's own schema has it, and nothing beside: `go run . FILE`. `make check-dashboard` runs it.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	var found dashboard.Dashboard
	// The error may be an empty list of errors.
	if err := found.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		fail(err)
	}
	if err := found.Validate(); err != nil && err.Error() != "" {
		fail(err)
	}
	fmt.Printf("%s: %d panels and rows, as the schema has them\n", os.Args[1], len(found.Panels))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
