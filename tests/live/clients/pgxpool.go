// pgxpool. One action a line; its answer: "ok", or SQLSTATE and text of the error.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4/pgxpool"
)

func describe(err error) string {
	state := "?"
	var said *pgconn.PgError
	if errors.As(err, &said) {
		state = said.Code
	}
	return state + " " + strings.ReplaceAll(err.Error(), "\n", " ")
}

func main() {
	var pool *pgxpool.Pool
	actions := bufio.NewScanner(os.Stdin)
	for actions.Scan() {
		action, argument, _ := strings.Cut(actions.Text(), " ")
		var err error
		switch action {
		case "pool":
			pool, err = pgxpool.Connect(context.Background(), argument)
		case "pooled":
			_, err = pool.Exec(context.Background(), argument)
		default:
			panic(action)
		}
		if err != nil {
			fmt.Println(describe(err))
		} else {
			fmt.Println("ok")
		}
	}
}
